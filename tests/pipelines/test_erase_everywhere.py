"""One erasure over a real root, landing, lake and PostgreSQL: pending while the root holds the text, then complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

from tests.pipelines.forgetting import SECRET, bytes_anywhere
from tests.pipelines.segments import Story
from tests.support.postgres import schema_url
from trajlake.ingest.landing_store import open_landing
from trajlake.ingest.shipper import Shipper
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.upkeep.erase import Wanted, continue_erasures, erase
from trajlake.runtime.root import Root


@pytest.mark.postgres
def test_a_text_leaves_warm_tier_landing_and_lake_and_the_root_is_named_until_it_has_it_no_more(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path / "journal"))
    writer = root.claim_writer()
    story = Story("a1", tenant="t").start(subjects=("ada",)).say(f"{SECRET} a1", 3).end()
    writer.append([event for event, _ in story.landed], story.info).wait(30)
    writer.close()
    landing, lake = str(tmp_path / "landing"), str(tmp_path / "lake")
    Shipper(root, open_landing(landing, root.env)).run()
    compact(landing, lake)
    with schema_url() as url, psycopg.connect(url, autocommit=True) as connection:
        WarmShipper(root, PostgresWarmTier(Database(url))).run()
        texts = "select count(*) from trajectory_events where payload is not null or frame is not null"
        assert connection.execute(texts).fetchone() == (5,)
        places = Places(roots=(root.path,), landings=(landing,), warm=(url,))
        report = erase(lake, Wanted(tenant="t", subject="ada", because="letter 7"), places)
        assert report.state == "pending"
        assert [line.split(": ")[1] for line in report.left] == [f"segment {name} holds it" for name in segments(root)]
        assert connection.execute(texts).fetchone() == (0,)
        WarmShipper(root, PostgresWarmTier(Database(url))).run()
        assert connection.execute(texts).fetchone() == (0,)
        shutil.rmtree(root.path)
        (done,) = continue_erasures(lake, Places(landings=(landing,), warm=(url,), gone=frozenset({writer.writer_id})))
    assert (done.state, done.left) == ("complete", [])
    assert bytes_anywhere(tmp_path, f"{SECRET} a1") == []


def segments(root: Root) -> list[str]:
    return sorted(path.name for path in Path(root.path, "writers").rglob("*.seg"))
