"""Into a root: twice, in any order, grown, changed, beside bad files, killed half-way; and out to a landing."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tests.ingest.reading import jsonl
from tests.ingest.test_chat_formats import CHAT
from tests.ingest.test_claude_code import LONG, block, user
from trajlake.ingest.import_run import UNDATED, ImportOptions, Outcome, import_paths
from trajlake.ingest.landing_store import open_landing
from trajlake.ingest.loss_report import all_reports
from trajlake.ingest.shipper import Shipper
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events, list_segments
from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical
from trajlake.schemas.state import fold, initial


def events_of(root: Root) -> dict[str, list[Event]]:
    found = defaultdict(list)
    for writer in root.writers():
        for event in iter_events(root.env, root.writer_folder(writer)):
            found[event.trajectory_id].append(event)
    return found


def rows(root: Root) -> set[tuple[str, int, bytes]]:
    return {(name, event.sequence_number, event.hash) for name, events in events_of(root).items() for event in events}


def take(root: Root, *paths: Path, **options: object) -> list[Outcome]:
    return import_paths(root, [str(path) for path in paths], ImportOptions(**options))  # type: ignore[arg-type]


def other_session(name: str) -> bytes:
    """A session of its own: other texts under the same short ids."""
    return jsonl(*LONG).replace(b'"s1"', b'"%s"' % name.encode()).replace(b"do it", b"do it for " + name.encode())


def test_the_real_files_import_into_whole_chains_that_fold(shared_data: Path, tmp_path: Path) -> None:
    root = Root.open(tmp_path / "root")
    outcomes = take(root, *(shared_data / name for name in ("claude-code", "openai-chat", "tau-bench")))
    assert not [one.error for one in outcomes if one.error]
    found = events_of(root)
    for name, events in found.items():
        history = canonical(events)
        assert len(history.events) == len(events), name
        assert verify(history.events) == []
        fold(initial("default", name), history.events)
        for event in events:
            assert all(root.blobs.has("default", sha) for sha in blob_hashes(event.type, event.payload))
    assert {report.sha256 for report in all_reports(root)} == {sha for _, sha in root.blobs.names()} & {
        report.sha256 for report in all_reports(root)
    }
    again = take(root, shared_data / "tau-bench", shared_data / "claude-code")
    assert all(one.unchanged for one in again)


def test_the_same_files_in_any_order_and_twice_give_the_same_rows(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "claude-code").glob("*.jsonl"))
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    one, other = Root.open(tmp_path / "one"), Root.open(tmp_path / "other")
    take(one, *files)
    shuffled = random.Random(seed).sample(files, len(files))
    for path in [*shuffled, *files]:
        take(other, path)
    assert rows(one) == rows(other)


def test_a_session_that_grows_by_bytes_adds_its_tail(tmp_path: Path) -> None:
    data = jsonl(*LONG)
    whole = Root.open(tmp_path / "whole")
    path = tmp_path / "s.jsonl"
    path.write_bytes(data)
    take(whole, path)
    grown = Root.open(tmp_path / "grown")
    for end in range(1, len(data) + 1, 97):
        path.write_bytes(data[:end])
        take(grown, path)
    path.write_bytes(data)
    take(grown, path)
    assert len(rows(grown)) == len(rows(whole))
    (events,) = events_of(grown).values()
    assert verify(canonical(events).events) == []
    # Event 0 was written before the model was known; everything behind it says the same.
    (wanted,) = events_of(whole).values()
    assert [event.payload for event in events[1:]] == [event.payload for event in wanted[1:]]


def test_a_source_that_was_changed_is_a_conflict_and_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*LONG))
    root = Root.open(tmp_path / "root")
    take(root, path)
    before = rows(root)
    path.write_bytes(jsonl(*LONG).replace(b'"one"', b'"ONE"'))
    (outcome,) = take(root, path)
    assert outcome.report is not None
    assert "event 4 (ToolResult) differs" in outcome.report.conflicts["claude-code/s1"]
    assert rows(root) == before


def test_one_bad_file_beside_good_ones_stops_none(tmp_path: Path, trajlake: object) -> None:
    for number in range(5):
        (tmp_path / f"good{number}.jsonl").write_bytes(other_session(f"s-{number}"))
    (tmp_path / "bad.jsonl").write_bytes(b"\x00\x01 nonsense")
    done = trajlake("import", "claude-code", ".", "--journal", "root")  # type: ignore[operator]
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "bad.jsonl" in done.stderr
    assert len(events_of(Root.open(tmp_path / "root"))) == 5


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("empty.jsonl", b"", "is empty"),
        ("other.jsonl", b'{"type":"session_meta","payload":{}}\n', "is no Claude Code session"),
        ("cut.json", b'[{"role":"user","content":"', "cut short"),
        ("id.jsonl", jsonl(user("x", "u", None, "../../x")), "looks like a path"),
        ("nul.jsonl", jsonl(user("x", "u", None, "a\0b")), "control character"),
        ("blank.jsonl", jsonl(user("x", "u", None, " ")), "empty or blank"),
        ("long.jsonl", jsonl(user("x", "u", None, "y" * 4096)), "at most 256"),
        ("cut.jsonl.gz", gzip.compress(jsonl(*LONG), mtime=0)[:60], "cut short"),
    ],
)
def test_bad_input_gets_one_line_exit_2_and_nothing_written(
    tmp_path: Path, trajlake: object, name: str, data: bytes, wanted: str
) -> None:
    (tmp_path / name).write_bytes(data)
    format_name = "openai-chat" if name.endswith(".json") else "claude-code"
    done = trajlake("import", format_name, name, "--journal", "root")  # type: ignore[operator]
    assert done.returncode == 2
    assert name in done.stderr
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not rows(Root.open(tmp_path / "root"))


def test_a_directory_without_sessions_and_a_missing_path_are_refused(tmp_path: Path, trajlake: object) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("empty", "nowhere"):
        done = trajlake("import", "auto", path, "--journal", "root")  # type: ignore[operator]
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert path in done.stderr


def test_a_torn_last_line_imports_the_rest_and_is_reported(tmp_path: Path, trajlake: object) -> None:
    (tmp_path / "t.jsonl").write_bytes(jsonl(*LONG) + b'{"type":"assist')
    done = trajlake("import", "auto", "t.jsonl", "--journal", "root", "--json")  # type: ignore[operator]
    assert done.returncode == 2
    assert "line 9" in done.stderr
    printed = json.loads(done.stdout)
    assert printed["total"]["events_added"] == 9
    assert printed["files"][0]["report"]["by_kind"]["skipped"] == {"torn last line": 1}


def test_a_compressed_bomb_is_refused(tmp_path: Path, trajlake: object) -> None:
    with gzip.open(tmp_path / "bomb.jsonl.gz", "wb") as stream:
        stream.write(jsonl(*LONG))
        for _ in range(70):
            stream.write(b" " * 1_000_000 + b"\n")
    done = trajlake("import", "claude-code", "bomb.jsonl.gz", "--journal", "root")  # type: ignore[operator]
    assert done.returncode == 2
    assert "possible bomb" in done.stderr
    assert not rows(Root.open(tmp_path / "root"))


def test_compressed_files_globs_and_stdin_are_read(tmp_path: Path) -> None:
    import zstandard

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(*LONG)))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(other_session("s2")))
    root = Root.open(tmp_path / "root")
    take(root, tmp_path / "*.jsonl.*", format="claude-code")
    assert sorted(events_of(root)) == ["claude-code/s1", "claude-code/s2"]


def test_a_file_is_not_imported_again_as_another_format(tmp_path: Path) -> None:
    root = Root.open(tmp_path / "root")
    (tmp_path / "chat.jsonl").write_bytes(jsonl({"messages": CHAT}))
    (first,) = take(root, tmp_path / "chat.jsonl")
    assert first.report is not None
    assert first.report.notes == {UNDATED: len(first.report.trajectories)}, "the source tells no time"
    (forced,) = take(root, tmp_path / "chat.jsonl", format="claude-code")
    assert "was imported as openai-chat before" in forced.error
    (again,) = take(root, tmp_path / "chat.jsonl")
    assert (again.format, again.unchanged) == ("openai-chat", True)


def test_auto_names_the_format_and_passes_over_strangers_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(jsonl(*LONG))
    (tmp_path / "c.json").write_text(json.dumps(CHAT))
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')
    outcomes = take(Root.open(tmp_path / "root"), tmp_path)
    assert sorted((one.format, one.error) for one in outcomes) == [("", ""), ("claude-code", ""), ("openai-chat", "")]


def test_an_import_cut_off_before_its_report_is_completed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*LONG))
    root = Root.open(tmp_path / "root")
    take(root, path)
    before = rows(root)
    shutil.rmtree(tmp_path / "root" / "imports")
    (outcome,) = take(root, path)
    assert (outcome.unchanged, outcome.events_added, outcome.events_known) == (False, 0, 9)
    assert rows(root) == before
    assert len(list(all_reports(root))) == 1


def test_shipping_puts_everything_once_and_blobs_first(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(LONG[0], block("m", {"type": "text", "text": "x" * 50_000}, "a1", "u1", stop="end_turn")))
    root = Root.open(tmp_path / "root")
    take(root, path)
    landing = open_landing(str(tmp_path / "landing"), root.env)
    order: list[str] = []
    put = landing.put  # what every way of putting comes down to
    landing.put = lambda name, data: (order.append(name), put(name, data))[1]  # type: ignore[method-assign]
    report = Shipper(root, landing).run()
    assert (report.segments_shipped, report.blobs_put, report.imports_put) == (1, 2, 1)
    assert [name.partition("/")[0] for name in order] == ["blobs", "writers", "blobs", "imports"]
    again = Shipper(root, landing).run()
    assert (again.segments_shipped, again.segments_there, again.blobs_put, again.imports_put) == (0, 1, 0, 0)
    names = {os.path.relpath(os.path.join(folder, name), tmp_path / "landing")
             for folder, _, files in os.walk(tmp_path / "landing") for name in files}  # fmt: skip
    assert names == set(order)


def test_a_segment_whose_blob_is_nowhere_stays_behind_and_is_listed(tmp_path: Path, trajlake: object) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(LONG[0], block("m", {"type": "text", "text": "x" * 50_000}, "a1", "u1", stop="end_turn")))
    root = Root.open(tmp_path / "root")
    take(root, path)
    shutil.rmtree(tmp_path / "root" / "blobs")
    done = trajlake("ship", "root", "--to", "landing", "--json")  # type: ignore[operator]
    assert done.returncode == 1
    assert json.loads(done.stdout)["segments_shipped"] == 0
    assert not (tmp_path / "landing" / "writers").exists()


def test_a_whole_segment_that_is_gone_is_told_by_ship_and_status(tmp_path: Path, trajlake: object) -> None:
    root = Root.open(tmp_path / "root")
    for name in ("one", "two", "three"):
        chat = [{"role": "user", "content": name}, {"role": "assistant", "content": "4"}]
        (tmp_path / name).write_text(json.dumps(chat))
        take(root, tmp_path / name)
    (writer,) = root.writers()
    first, second, third = list_segments(root.env, root.writer_folder(writer))
    os.unlink(second.path)
    expected = f"{third.path}: begins at lsn {third.first_lsn}, but lsn {first.last_lsn + 1} was to come"
    done = trajlake("ship", "root", "--to", "landing")  # type: ignore[operator]
    assert done.returncode == 1
    assert done.stderr.startswith(f"trajlake: {expected}")
    assert len(done.stderr.splitlines()) == 1
    assert expected in trajlake("status", "--journal", "root").stdout  # type: ignore[operator]
    assert expected in trajlake("status", "--journal", "root", "--tenant", "nobody").stdout  # type: ignore[operator]


def test_shipping_to_an_fsspec_url_puts_the_same_objects(tmp_path: Path) -> None:
    import fsspec

    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*LONG))
    root = Root.open(tmp_path / "root")
    take(root, path)
    Shipper(root, open_landing("memory://landing", root.env)).run()
    names = fsspec.filesystem("memory").find("/landing")
    assert sorted(name.split("/")[2] for name in names) == ["blobs", "imports", "writers"]
    again = Shipper(root, open_landing("memory://landing", root.env)).run()
    assert again.bytes_put == 0


def test_reports_are_shown(tmp_path: Path, trajlake: object) -> None:
    (tmp_path / "s.jsonl").write_bytes(jsonl(*LONG))
    trajlake("import", "auto", "s.jsonl", "--journal", "root")  # type: ignore[operator]
    done = trajlake("import", "--report", "--journal", "root", "--json")  # type: ignore[operator]
    (report,) = json.loads(done.stdout)
    assert report["records"] == {"seen": 8, "mapped": 8, "kept_raw": 0, "skipped": 0, "held_back": 0}
    assert report["trajectories"] == {"claude-code/s1": 9}
    done = trajlake("import", "--report", "--lake", "nowhere")  # type: ignore[operator]
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "no lake there" in done.stderr


def as_session(records: list[dict[str, object]], session: str) -> bytes:
    return jsonl(*({**record, "sessionId": session} for record in records))


@pytest.mark.parametrize("together", [True, False])
def test_a_resumed_copy_adds_nothing_and_a_longer_one_only_what_is_new(tmp_path: Path, together: bool) -> None:
    original = as_session(LONG, "s1")
    more = [user("and now", "u3", "u2"), block("m9", {"type": "text", "text": "ok"}, "a9", "u3", stop="end_turn")]
    (tmp_path / "b.jsonl").write_bytes(original)
    (tmp_path / "a-copy.jsonl").write_bytes(as_session(LONG, "session-copied-under-a-longer-name"))
    (tmp_path / "c-resumed.jsonl").write_bytes(as_session([*LONG, *more], "s3-resumed-and-gone-on"))
    root = Root.open(tmp_path / "root")
    names = ["b.jsonl", "a-copy.jsonl", "c-resumed.jsonl"]
    if together:
        take(root, tmp_path, format="claude-code")
    else:
        for name in names:
            take(root, tmp_path / name)
    found = events_of(root)
    assert sorted(found) == ["claude-code/s1", "claude-code/s3-resumed-and-gone-on"]
    replies = [event for events in found.values() for event in events if event.type == "ModelReplied"]
    assert len(replies) == 3
    resumed = found["claude-code/s3-resumed-and-gone-on"]
    origins = [event.body.origin for event in resumed if event.type == "MessageAdded"]
    assert origins == ["copied"] * 8 + ["imported"]
    built = next(event for event in resumed if event.type == "ContextBuilt")
    assert len(built.body.append) == 9


def test_copies_of_scrubbed_files_under_new_sessions_are_sessions_of_their_own(tmp_path: Path) -> None:
    bare = [{**record, "message": {**record["message"], "id": None}} for record in LONG]
    for session in ("x", "y"):
        (tmp_path / f"{session}.jsonl").write_bytes(as_session(bare, session))
    root = Root.open(tmp_path / "root")
    take(root, tmp_path, format="claude-code")
    assert sorted(events_of(root)) == ["claude-code/x", "claude-code/y"]


def test_several_processes_give_the_same_rows_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajlake.ingest import many_files

    (tmp_path / "src").mkdir()
    for number in range(12):
        (tmp_path / "src" / f"{number:02}.jsonl").write_bytes(other_session(f"s-{number}"))
    (tmp_path / "src" / "07b.jsonl").write_bytes(b"nonsense")
    one, many = Root.open(tmp_path / "one"), Root.open(tmp_path / "many")
    take(one, tmp_path / "src", format="claude-code")
    monkeypatch.setattr(many_files, "GROUP_SIZE_MAX_BYTES", 1)
    monkeypatch.setattr(many_files, "processes_for", lambda _: 3)
    outcomes = take(many, tmp_path / "src", format="claude-code")
    assert rows(many) == rows(one)
    assert [bool(outcome.error) for outcome in outcomes].count(True) == 1
    assert not take(many, tmp_path / "src" / "03.jsonl")[0].events_added


def test_a_raised_mapping_version_replaces_the_older_import_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajlake.ingest.formats.claude_code import IMPORTER

    path = tmp_path / "s.jsonl"
    path.write_bytes(jsonl(*LONG))
    root = Root.open(tmp_path / "root")
    take(root, path)
    monkeypatch.setattr(IMPORTER, "mapping_version", 1, raising=False)
    (outcome,) = take(root, path)
    assert outcome.events_added == 9
    (events,) = events_of(root).values()
    history = canonical(events)
    assert [event.fencing_token for event in history.events] == [1] * 9
    assert len(history.superseded) == 9
    assert [report.mapping_version for report in all_reports(root)] == [0, 1]


def test_a_watched_session_is_imported_as_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trajlake.ingest import watch
    from trajlake.runtime.settings import load

    path = tmp_path / "s.jsonl"
    steps = [jsonl(*LONG[:1]), jsonl(*LONG[:4]), jsonl(*LONG[:7]), jsonl(*LONG)]
    path.write_bytes(steps.pop(0))
    monkeypatch.setattr(watch.time, "sleep", lambda _: path.write_bytes(steps.pop(0)))
    settings = load(journal=str(tmp_path / "root"))
    options = ImportOptions(format="claude-code", following=True)
    added: list[int] = []
    watch.follow_paths(
        settings, [str(path)], options, into_lake=False, show=lambda one: added.append(one.events_added), rounds=4
    )
    assert added == [8, 1]
    assert len(rows(Root.open(tmp_path / "root"))) == 9


def test_one_record_of_20_mb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = tmp_path / "big.jsonl"
    path.write_bytes(
        jsonl(LONG[0], block("m", {"type": "text", "text": "x" * 20_000_000}, "a1", "u1", stop="end_turn"))
    )
    script = (
        "import sys\n"
        "from trajlake.ingest.import_run import ImportOptions, import_paths\n"
        "from trajlake.runtime.root import Root\n"
        "(one,) = import_paths(Root.open(sys.argv[1]), [sys.argv[2]], ImportOptions())\n"
        "assert one.events_added == 4, one\n"
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(int(peak) // 1024)\n"  # not ru_maxrss: it counts what the parent held at the fork
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "root"), str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200, done.stdout
    (events,) = events_of(Root.open(tmp_path / "root")).values()
    assert [len(blob_hashes(event.type, event.payload)) for event in events] == [0, 0, 0, 1]


def test_into_a_lake_in_one_go_and_again_without_new_rows(tmp_path: Path, trajlake: object) -> None:
    (tmp_path / "s.jsonl").write_bytes(jsonl(*LONG))
    first = trajlake("import", "auto", "s.jsonl", "--lake", "lake", "--json")  # type: ignore[operator]
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["lake"]["events_added"] == 9
    sql = "select (select count(*) from events) as events, (select count(*) from tool_calls) as calls, "
    sql += "(select records_seen from imports) as seen"
    shown = trajlake("sql", "--lake", "lake", "--json", sql)  # type: ignore[operator]
    assert json.loads(shown.stdout) == [{"events": 9, "calls": 2, "seen": 8}]
    again = trajlake("import", "auto", "s.jsonl", "--lake", "lake", "--json")  # type: ignore[operator]
    assert json.loads(again.stdout)["total"]["events_added"] == 0
    assert json.loads(trajlake("sql", "--lake", "lake", "--json", sql).stdout)[0]["events"] == 9  # type: ignore[operator]
