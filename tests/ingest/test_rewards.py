"""Results of evaluations become judgement trajectories: deterministic, about the right trajectory, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import read as read_items
from tests.ingest.test_benchmark_formats import results, tau2
from trajlake.ingest.judgements import batch_id, infos_of, write_judgements
from trajlake.ingest.reward_files import Judged, read_rewards
from trajlake.ingest.sources import find_sources
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events
from trajlake.schemas.chain import verify
from trajlake.schemas.errors import InvalidId


def read(path: Path, kind: str = "auto", known: tuple[str, ...] = (), **more: str) -> list[Judged]:
    (source,) = find_sources([str(path)])
    return read_rewards(source, kind, known, **more)


def events(root: Root) -> list[Any]:
    return [event for writer in root.writers() for event in iter_events(root.env, root.writer_folder(writer))]


def test_rows_of_any_kind_of_file_say_the_same(tmp_path: Path) -> None:
    rows = [
        {"trajectory_id": "a", "value": 1, "verifier": "v", "verifier_version": "2"},
        {"trajectory_id": "b", "reward": 0.25, "verifier": "v", "verifier_version": "2"},
        {"trajectory_id": "c", "score": True, "verifier": "v", "verifier_version": "2"},
    ]
    (tmp_path / "r.json").write_text(json.dumps(rows))
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    csv = "trajectory_id,value,verifier,verifier_version\na,1,v,2\nb,0.25,v,2\nc,1,v,2\n"
    (tmp_path / "r.csv").write_text(csv)
    found = [[(one.trajectory_id, one.value, one.verifier_version) for one in read(tmp_path / name)]
             for name in ("r.json", "r.jsonl", "r.csv")]  # fmt: skip
    assert found == [[("a", "1", "2"), ("b", "0.25", "2"), ("c", "1", "2")]] * 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"value": 1}', "has no trajectory_id"),
        ('{"trajectory_id": "a", "value": 1}', "names no verifier"),
        ('{"trajectory_id": "a", "verifier": "v"}', "neither value nor label"),
        ('{"trajectory_id": "a", "verifier": "v", "value": "good"}', "no number"),
        ("not json\n{", "neither JSON"),
    ],
)
def test_a_bad_row_is_one_line_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(UserError) as caught:
        read(tmp_path / "r.jsonl")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_swe_bench_reports_find_their_trajectories(tmp_path: Path) -> None:
    known = ("swe-agent/x__y-1-abc", "swe-agent/x__y-12-abc", "mini/z__w-3")
    (tmp_path / "a.json").write_text(json.dumps({"resolved_ids": ["x__y-1"], "unresolved_ids": ["z__w-3"]}))
    (tmp_path / "b.json").write_text(json.dumps({"x__y-12": {"resolved": True, "patch_applied": True}}))
    found = [
        (one.trajectory_id, one.value)
        for name in ("a.json", "b.json")
        for one in read(tmp_path / name, "swe-bench", known)
    ]
    assert found == [("swe-agent/x__y-1-abc", "1"), ("mini/z__w-3", "0"), ("swe-agent/x__y-12-abc", "1")]


def test_tau_bench_rewards_are_about_the_trajectories_of_the_same_import(shared_data: Path) -> None:
    path = shared_data / "tau-bench/gpt-4o-airline.json"
    found = read(path)
    runs = json.loads(path.read_bytes())
    assert len(found) == len(runs) == 200
    assert {one.trajectory_id: float(one.value) for one in found} == {
        f"tau-bench/gpt-4o-airline/{run['task_id']}-{run['trial']}": run["reward"] for run in runs
    }
    assert found[0].details["ground_truth"]["actions"] == runs[0]["info"]["task"]["actions"]


def test_tau2_bench_rewards_are_about_the_trajectories_of_the_same_import(tmp_path: Path) -> None:
    judged = {"reward": 0.0, "reward_basis": ["DB"], "reward_breakdown": {"DB": 0.0}}
    path = tmp_path / "airline.json"
    path.write_bytes(results(tau2(reward_info=judged, trial=2), tau2(id="sim-2", reward_info=None)))
    (found,) = read(path)
    assert (found.trajectory_id, found.value, found.verifier) == ("tau2-bench/sim-1", "0", "tau2-bench")
    assert (found.details["breakdown"], found.details["trial"]) == ({"DB": 0.0}, 2)
    assert found.trajectory_id in {item.trajectory_id for item in read_items("tau2-bench", path).items}


def test_inspect_scores_are_numbers_of_a_versioned_scorer(shared_data: Path) -> None:
    found = [one for source in find_sources([str(shared_data / "inspect")]) for one in read_rewards(source, "auto", ())]
    assert {one.value for one in found} <= {"0", "1", "0.5"}
    assert all(one.verifier_version and one.trajectory_id.startswith("inspect/") for one in found)


def test_a_batch_is_one_trajectory_whose_bytes_depend_on_it_alone(tmp_path: Path) -> None:
    judged = [Judged(trajectory_id=f"r{n}", verifier="v/1", verifier_version="2.0", value=str(n % 2)) for n in range(5)]
    one, other = Root.open(tmp_path / "one"), Root.open(tmp_path / "other")
    (made,) = write_judgements(one, judged, "t")
    (again,) = write_judgements(other, judged[::-1] + judged[:1], "t")
    assert made.trajectory_id == again.trajectory_id
    assert made.trajectory_id.startswith("judge/v-1/2.0/")
    left, right = events(one), events(other)
    assert [event.hash for event in left] == [event.hash for event in right]
    assert [event.type for event in left] == ["TaskStarted", *["RewardAssigned"] * 5, "TaskEnded"]
    assert {event.fencing_token for event in left} == {0}
    assert verify(left) == []
    (known,) = write_judgements(one, judged, "t")
    assert known.known
    assert len(events(one)) == len(left)


def test_batches_are_apart_by_tenant_verifier_and_version(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    judged = [
        Judged(trajectory_id="r", verifier="v", verifier_version="1", value="1"),
        Judged(trajectory_id="r", verifier="v", verifier_version="2", value="0"),
        Judged(trajectory_id="r", verifier="w", label="good"),
        Judged(trajectory_id="r", verifier="v", verifier_version="1", value="1", tenant="other"),
    ]
    assert len(write_judgements(root, judged, "t")) == 4
    assert sorted({info.tenant for info in infos_of(root)}) == ["other", "t"]


def test_a_judgement_of_no_trajectory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidId):
        write_judgements(Root.open(tmp_path), [Judged(trajectory_id="judge/x", verifier="v", value="1")], "t")


def test_an_id_holds_a_verifier_s_name_as_plain_characters() -> None:
    name = batch_id([Judged(trajectory_id="a", verifier="ü/ß x", value="1")], "t", "ü/ß x", "")
    assert name.isascii()
    assert name.count("/") == 3


def test_the_command_line_imports_and_annotates(tmp_path: Path, trajlake: Any) -> None:
    (tmp_path / "r.jsonl").write_text('{"trajectory_id": "a", "value": 1}\n')
    done = trajlake(
        "import", "rewards", "r.jsonl", "--journal", "root", "--verifier", "tests", "--verifier-version", "3"
    )
    assert done.returncode == 0, done.stderr
    assert "tests 3: 1 judgements, written" in done.stdout
    again = trajlake(
        "import", "rewards", "r.jsonl", "--journal", "root", "--verifier", "tests", "--verifier-version", "3"
    )
    assert "known already" in again.stdout
    unknown = trajlake("annotate", "a", "--label", "good", "--journal", "root")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "no trajectory 'a' of tenant 'default'" in unknown.stderr
    done = trajlake("annotate", "a", "--label", "good", "--journal", "root", "--anyway")
    assert done.stdout.startswith("person: 1 judgements, written"), done.stderr
    refused = trajlake("annotate", "a", "--journal", "root")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_annotate_into_a_lake_takes_what_is_in_it_only(tmp_path: Path, trajlake: Any) -> None:
    chat = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(chat) + "\n")
    assert trajlake("import", "openai-chat", "chat.jsonl", "--lake", "lake").returncode == 0
    (name,) = json.loads(trajlake("sql", "--lake", "lake", "--json", "select trajectory_id from trajectories").stdout)
    assert trajlake("annotate", "nosuch", "--value", "1", "--lake", "lake").returncode == 2
    assert trajlake("annotate", name["trajectory_id"], "--value", "1", "--lake", "lake").returncode == 0
