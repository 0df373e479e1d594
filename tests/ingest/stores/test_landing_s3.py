"""The landing in object storage: sealed segments and blobs arrive whole, whatever happens on the way."""

from __future__ import annotations

import random

import pytest

from tests.ingest.stores.histories import History, write
from tests.support.faulty_proxy import faulty
from tests.support.object_store import BUCKET, CREDENTIALS, fresh_url, shared_endpoint
from trajlake.ingest.landing_store import LandingRefused, LandingStore, open_landing
from trajlake.ingest.shipper import Shipper
from trajlake.runtime.env import REAL_ENV, read_file
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import list_segments
from trajlake.schemas import events as types

pytestmark = pytest.mark.s3


@pytest.fixture
def landing_at(monkeypatch):
    """Open a fresh landing behind a server's address, as a process with these settings would."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    prefix = fresh_url().partition("?")[0].removeprefix(f"s3://{BUCKET}/")

    def at(endpoint: str) -> LandingStore:
        import s3fs

        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        s3fs.S3FileSystem.clear_instance_cache()
        return open_landing(f"s3://{BUCKET}/{prefix}/landing", REAL_ENV)

    return at


def filled(tmp_path) -> Root:
    root = Root.open(str(tmp_path / "journal"))
    sha256 = root.blobs.put("default", b"bulk" * 20_000)
    runs = []
    for number in range(3):
        history = History(f"t{number}")
        history.start()
        history.say(50)
        history.add(types.VarSet(name="b", value={"$blob": sha256, "bytes": 80_000, "kind": "text", "head": ""}))
        runs.append(history.events)
    write(root, *runs)
    return root


def compare(root: Root, landing: LandingStore) -> None:
    for writer in root.writers():
        for segment in list_segments(root.env, root.writer_folder(writer)):
            name = f"writers/{writer}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
            assert landing.get(name) == read_file(root.env, segment.path)
    for tenant, sha256 in root.blobs.names():
        assert landing.get(f"blobs/{tenant}/{sha256[:2]}/{sha256}") == root.blobs.get(tenant, sha256)


def test_a_root_arrives_whole_and_shipping_again_puts_nothing(tmp_path, landing_at):
    root, landing = filled(tmp_path), landing_at(shared_endpoint())
    report = Shipper(root, landing).run()
    assert (report.segments_shipped, report.blobs_put, report.missing) == (3, 1, [])
    compare(root, landing)
    again = Shipper(root, landing).run()
    assert (again.segments_shipped, again.segments_there, again.blobs_put) == (0, 3, 0)


def test_faults_on_the_way_leave_nothing_half_and_a_later_run_completes_it(tmp_path, landing_at):
    root, seed = filled(tmp_path), random.randrange(2**30)
    chance = random.Random(seed)
    faults = ("error500", "slow", "cut_upload", "cut_answer", "lost_answer")

    def often(method: str, path: str) -> str | None:
        return chance.choice(faults) if chance.random() < 0.3 else None

    with faulty(shared_endpoint(), often) as proxy:
        landing = landing_at(proxy.endpoint)
        for _ in range(40):
            try:
                Shipper(root, landing).run()
                break
            except OSError:
                continue
        assert proxy.counts, f"seed {seed}"
    compare(root, landing_at(shared_endpoint()))


def test_expired_credentials_are_an_error_that_shipping_outlives(tmp_path, landing_at):
    root = filled(tmp_path)
    with (
        faulty(shared_endpoint(), lambda *_: "expired") as proxy,
        pytest.raises(LandingRefused, match=r"(?i)^s3://.*: .*(expired|denied|forbidden)") as refused,
    ):
        Shipper(root, landing_at(proxy.endpoint)).run()
    assert refused.value.exit_code == 3
    landing = landing_at(shared_endpoint())
    assert Shipper(root, landing).run().segments_shipped == 3
    compare(root, landing)
