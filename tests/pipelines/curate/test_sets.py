"""A set as a thing to sign for: manifest, pin, card, byte-identical rebuild, second nights, erasure."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.curate.runs import Run, lake_of, policy, policy_text, rewards
from trajlake.pipelines.curate.cut import Cut, CutOptions, cut_sft
from trajlake.pipelines.curate.explain import explain_set
from trajlake.pipelines.curate.kept import Kept, forget
from trajlake.pipelines.curate.loader import open_pin
from trajlake.pipelines.curate.manifest import read_manifest
from trajlake.pipelines.curate.policy import load_policy
from trajlake.pipelines.curate.rebuild import rebuild
from trajlake.pipelines.curate.recut import sets_to_recut
from trajlake.pipelines.curate.select import extract_key
from trajlake.pipelines.curate.tasks import TASK_ROWS_MAX
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.pins import all_pins, lift_pin, pinned_files, put_pin, read_pin
from trajlake.runtime.cli_errors import UserError

FAMILIES = ("openai", "trl", "axolotl", "skyrl")


def some_runs(count: int = 8) -> list[Any]:
    runs: list[Any] = [Run(f"run {n}", task={"task_id": f"task {n // 2}"}).simple(f"thing {n}") for n in range(count)]
    return [*runs, rewards({f"run {n}": n % 2 for n in range(count)})]


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def cut(lake: str, out: Path, workers: int = 1, **tables: dict[str, Any]) -> Cut:
    return cut_sft(lake, policy(**tables), str(out), CutOptions(families=FAMILIES, workers=workers))


def test_a_set_is_rebuilt_to_the_byte_in_another_place_by_more_workers_from_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = some_runs()
    lake = lake_of(tmp_path / "a", runs[:3])
    lake_of(tmp_path / "a", runs[3:], night=1)
    first = cut(lake, tmp_path / "first", split={"validation": 0.4})
    # The lake moves, what curation kept is gone, tasks are small and many, and two processes read.
    shutil.copytree(tmp_path / "a/lake", tmp_path / "elsewhere/lake")
    shutil.rmtree(tmp_path / "a")
    moved = str(tmp_path / "elsewhere/lake")
    forget(Lake.open(moved))
    for name in os.listdir(f"{moved}/_trajlake/snapshots"):
        if name != "0.json":
            os.unlink(f"{moved}/_trajlake/snapshots/{name}")
    monkeypatch.setattr("trajlake.pipelines.curate.tasks.TASK_ROWS_MAX", 20)
    done = rebuild(moved, str(tmp_path / "first"), str(tmp_path / "second"), CutOptions(workers=2))
    assert done.differences == []
    assert hashes(tmp_path / "first") == hashes(tmp_path / "second")
    assert first.manifest is not None
    assert str(tmp_path) not in (tmp_path / "first/manifest.json").read_text()
    assert TASK_ROWS_MAX > 20


def test_other_order_of_input_files_gives_the_same_bytes(tmp_path: Path) -> None:
    runs = some_runs()
    one = lake_of(tmp_path / "one", runs)
    for night, run in enumerate(reversed(runs)):
        two = lake_of(tmp_path / "two", [run], night=night)
    cut(one, tmp_path / "set one")
    cut(two, tmp_path / "set two", workers=2)
    left, right = hashes(tmp_path / "set one"), hashes(tmp_path / "set two")
    # Snapshot numbers and table versions differ, so manifest and card do; every row's byte is the same.
    for name in ("manifest.json", "README.md"):
        del left[name], right[name]
    assert left == right


def test_a_rebuild_says_what_differs(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    cut(lake, tmp_path / "set")
    (tmp_path / "set/policy.toml").write_text(policy_text(caps={"per_task": 1}))
    with pytest.raises(UserError, match="hash is not the manifest's"):
        rebuild(lake, str(tmp_path / "set"), str(tmp_path / "again"), CutOptions())


def test_a_set_is_never_changed_in_place_and_a_failed_cut_leaves_no_folder(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    cut(lake, tmp_path / "set")
    with pytest.raises(UserError, match="never changed in place"):
        cut(lake, tmp_path / "set")
    with pytest.raises(UserError, match="no such family"):
        cut_sft(lake, policy(), str(tmp_path / "other"), CutOptions(families=("nosuch",)))
    assert not (tmp_path / "other").exists()


def test_the_manifest_names_everything_a_set_was_cut_by(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    (tmp_path / "evals.jsonl").write_text('"some evaluation prompt of many different words"\n')
    (tmp_path / "policy.toml").write_text(policy_text(contamination={"files": ["evals.jsonl"]}))
    cut_sft(lake, load_policy(tmp_path / "policy.toml"), str(tmp_path / "set"), CutOptions(families=FAMILIES))
    manifest = read_manifest(str(tmp_path / "set"))
    assert manifest.evaluation_sha256 == {
        "evals.jsonl": hashlib.sha256((tmp_path / "evals.jsonl").read_bytes()).hexdigest()
    }
    assert manifest.snapshot == Lake.open(lake).newest().number
    assert set(manifest.table_versions) == {"events", "trajectories", "judgements", "blobs"}
    assert manifest.libraries["polars"]
    for facts in manifest.files:
        data = (tmp_path / "set" / facts.path).read_bytes()
        assert (facts.bytes, facts.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert sum(manifest.splits.values()) == manifest.rows == 4
    card = (tmp_path / "set/README.md").read_text()
    assert all(text in card for text in (manifest.row_root, "evals.jsonl", "trl-messages"))
    # The set carries its policy and inputs: it is rebuilt without them.
    os.unlink(tmp_path / "policy.toml")
    os.unlink(tmp_path / "evals.jsonl")
    assert rebuild(lake, str(tmp_path / "set"), str(tmp_path / "again"), CutOptions()).differences == []


def test_every_drop_has_a_row_in_the_ledger_and_the_funnel_adds_up(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    done = cut(lake, tmp_path / "set", reward={"required": True})
    ledger = pl.read_parquet(tmp_path / "set/ledger.parquet")
    dropped = sum(sum(step.dropped.values()) for step in done.funnel.steps)
    assert done.funnel.adds_up()
    assert len(ledger) == dropped == 4
    assert explain_set(str(tmp_path / "set"), "run 0")[0].dropped[0][1:3] == ("reward", "low_reward")
    assert explain_set(str(tmp_path / "set"), "run 1")[0].is_in


def test_the_second_night_reads_only_what_changed(tmp_path: Path) -> None:
    runs = some_runs()
    lake = lake_of(tmp_path, runs[:6])
    assert cut(lake, tmp_path / "one").read_anew == 6
    assert cut_sft(lake, policy(), None, CutOptions(dry_run=True)).read_anew == 0
    lake_of(tmp_path, runs[6:], night=1)
    second = cut(lake, tmp_path / "two")
    assert second.read_anew == 2
    # Another policy on the same texts reads nothing; one that looks at texts otherwise reads all.
    assert cut_sft(lake, policy(caps={"per_task": 1}), None, CutOptions(dry_run=True)).read_anew == 0
    assert cut_sft(lake, policy(leak={"patterns": ["x"]}), None, CutOptions(dry_run=True)).read_anew == 8
    # And the night in two steps gives what one night would have.
    whole = lake_of(tmp_path / "at once", runs)
    cut(whole, tmp_path / "at once set")
    assert hashes(tmp_path / "two")["rows/train.parquet"] == hashes(tmp_path / "at once set")["rows/train.parquet"]


def test_a_trajectory_that_grows_is_read_again_and_its_old_rows_are_gone(tmp_path: Path) -> None:
    run = Run("grows").say("user", "go")
    run.reply("first")
    lake = lake_of(tmp_path, [run])
    cut(lake, tmp_path / "one")
    seen = run.number
    run.say("user", "more")
    run.reply("second")
    tail = Run("grows")
    tail.story.landed = run.story.landed[seen:]
    lake_of(tmp_path, [tail], night=1)
    assert cut(lake, tmp_path / "two").read_anew == 1
    rows = pl.read_parquet(tmp_path / "two/rows/train.parquet")
    assert [json.loads(text)[-1]["content"] for text in rows["messages_json"]] == ["second"]


def test_late_data_is_cut_on_the_snapshot_and_never_on_event_time(tmp_path: Path) -> None:
    # CASES.md E19: an old event that lands late is in the snapshot after, whatever its clock says.
    runs = some_runs(4)
    lake = lake_of(tmp_path, runs[1:])
    before = Lake.open(lake).newest().number
    first = cut(lake, tmp_path / "one", reward={"minimum": 0.0})
    lake_of(tmp_path, runs[:1], night=1)
    assert cut(lake, tmp_path / "two", reward={"minimum": 0.0}).rows == first.rows + 1
    options = CutOptions(families=FAMILIES, snapshot=before, pin="old")
    at = cut_sft(lake, policy(reward={"minimum": 0.0}), str(tmp_path / "old"), options)
    assert at.rows == first.rows
    assert hashes(tmp_path / "old")["rows/train.parquet"] == hashes(tmp_path / "one")["rows/train.parquet"]


def test_many_small_nights_are_merged_and_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajlake.pipelines.curate.kept.SMALL_PARTS_MAX", 2)
    runs = some_runs(6)
    for night, run in enumerate(runs):
        lake = lake_of(tmp_path, [run], night=night)
        cut_sft(lake, policy(), None, CutOptions(dry_run=True))
    kept = Kept(Lake.open(lake), extract_key(policy()))
    assert len(kept.parts()) <= 3
    cut(lake, tmp_path / "set")
    cut(lake_of(tmp_path / "whole", runs), tmp_path / "whole set")
    assert hashes(tmp_path / "set")["rows/train.parquet"] == hashes(tmp_path / "whole set")["rows/train.parquet"]


def test_erasing_a_subject_lists_the_sets_to_cut_again(tmp_path: Path) -> None:
    # CASES.md E20, curation's part.
    runs = [Run("of u1", subjects=("u1",)).simple("mine"), Run("of u2", subjects=("u2",)).simple("theirs")]
    lake = lake_of(tmp_path, runs)
    opened = Lake.open(lake)
    cut(lake, tmp_path / "both")
    without = {"refuse_subjects": ["u1"]}
    cut_sft(lake, policy(eligibility=without), str(tmp_path / "only u2"), CutOptions())
    assert sets_to_recut(opened) == []
    append_ledger(
        opened, "erasures", [{"erasure_id": "e1", "epoch": 1, "state": "requested", "tenant": "t", "subject": "u1"}]
    )
    found = sets_to_recut(opened)
    assert [(one.trajectories, one.paths) for one in found] == [([("t", "of u1")], [str(tmp_path / "both")])]
    # A new set on the old snapshot is refused: it would bring the person back.
    with pytest.raises(LakeError, match="an erasure was asked for"):
        cut_sft(lake, policy(), str(tmp_path / "late"), CutOptions(pin="late"))
    assert "late" not in [pin.name for pin in all_pins(opened)]


def test_an_erasure_takes_the_person_out_of_what_is_kept_out_of_pins_and_out_of_a_rebuild(tmp_path: Path) -> None:
    from trajlake.pipelines.upkeep.erase import Wanted, erase

    runs = [Run("of u1", subjects=("u1",)).simple("SECRETWORD"), Run("of u2").simple("theirs")]
    lake = lake_of(tmp_path, runs)
    done = cut(lake, tmp_path / "set")
    assert done.manifest is not None
    report = erase(lake, Wanted(tenant="t", subject="u1"))
    assert report.recut == [done.manifest.pin]
    assert Kept(Lake.open(lake), extract_key(policy())).parts() == []
    again = rebuild(lake, str(tmp_path / "set"), str(tmp_path / "again"), CutOptions())
    assert any("erasure epoch" in line for line in again.differences)
    rows = pl.read_parquet(tmp_path / "again/rows/train.parquet")
    assert rows["trajectory_id"].to_list() == ["of u2"]
    assert "SECRETWORD" not in "".join(rows["messages_json"])


def test_what_curation_keeps_is_forgotten_when_the_epoch_rises(tmp_path: Path) -> None:
    import msgspec

    from trajlake.pipelines.curate.kept import drop_erased

    lake = Lake.open(lake_of(tmp_path, some_runs(2)))
    cut_sft(lake.url, policy(), None, CutOptions(dry_run=True))
    kept = Kept(lake, extract_key(policy()))
    assert kept.parts()
    assert not drop_erased(lake, lake.newest())
    assert drop_erased(lake, msgspec.structs.replace(lake.newest(), erasure_epoch=1))
    assert kept.parts() == []


def test_what_could_not_be_forgotten_is_not_marked_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    from tests.pipelines.test_erase import refusing
    from trajlake.pipelines.curate.kept import drop_erased

    lake = Lake.open(lake_of(tmp_path, some_runs(2)))
    cut_sft(lake.url, policy(), None, CutOptions(dry_run=True))
    risen = msgspec.structs.replace(lake.newest(), erasure_epoch=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refusing(os.unlink))
        with pytest.raises(PermissionError):
            drop_erased(lake, risen)
    assert drop_erased(lake, risen)
    assert Kept(lake, extract_key(policy())).parts() == []


def test_a_pin_names_the_files_that_vacuum_must_leave(tmp_path: Path) -> None:
    # CASES.md E21, curation's part: every file a rebuild reads is named, and lifted files are not.
    lake = lake_of(tmp_path, some_runs())
    done = cut(lake, tmp_path / "set")
    opened = Lake.open(lake)
    assert done.manifest is not None
    pin = read_pin(opened, done.manifest.pin)
    assert all((tmp_path / "lake" / path).exists() for path in pinned_files(opened))
    assert {path.split("/")[0] for path in pinned_files(opened)} >= {"events", "trajectories", "judgements"}
    assert put_pin(opened, pin) == pin
    import msgspec

    with pytest.raises(LakeError, match="stands already"):
        put_pin(opened, msgspec.structs.replace(pin, files={}))
    assert lift_pin(opened, pin.name)
    assert pinned_files(opened) == set()
    with pytest.raises(LakeError, match="there is none of that name"):
        rebuild(lake, str(tmp_path / "set"), str(tmp_path / "again"), CutOptions())


def test_the_loader_opens_a_set_by_its_pin_and_refuses_a_changed_one(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    done = cut(lake, tmp_path / "set")
    assert done.manifest is not None
    stream = open_pin(lake, done.manifest.pin, columns=("sample_id",))
    assert len(list(stream.rows())) == len(stream) == done.rows
    (tmp_path / "set/manifest.json").write_text("{}")
    with pytest.raises(LakeError, match="rebuild it"):
        open_pin(lake, done.manifest.pin)


def test_the_set_is_in_the_ledger_of_exports_once(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, some_runs())
    done = cut(lake, tmp_path / "set")
    rows = pl.concat([pl.read_parquet(path) for path in Lake.open(lake).ledger_files("exports")])
    assert done.manifest is not None
    assert rows.select("export_id", "kind", "rows").rows() == [(done.manifest.pin, "sft", 4)]
    assert rows["manifest_sha256"][0] == hashlib.sha256((tmp_path / "set/manifest.json").read_bytes()).hexdigest()


@pytest.mark.long
def test_events_are_read_on_a_beam_runner_with_the_same_result(tmp_path: Path) -> None:
    runs = some_runs()
    lake = lake_of(tmp_path, runs)
    cut(lake, tmp_path / "here")
    forget(Lake.open(lake))
    options = CutOptions(families=FAMILIES, runner="FnApiRunner")
    done = cut_sft(lake, policy(), str(tmp_path / "beam"), options)
    assert done.read_anew == 8
    assert hashes(tmp_path / "here") == hashes(tmp_path / "beam")
