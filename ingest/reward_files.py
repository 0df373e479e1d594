"""Results of evaluations as judgements: a file of rows, tau-bench, tau2-bench and Inspect logs, SWE-bench reports.

Benchmark and Inspect files are read by their importers, so that a judgement names the trajectory that the import of
the same file made. A SWE-bench report names instances: those are looked for among the trajectories of the root.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.events import SourceKept
from trajlake.schemas.values import to_tree_lossy

from .formats.build import time_us
from .formats.contract import Loss, ReadOptions
from .formats.registry import importer
from .sources import Source

LETTERS: Final = {"C": "1", "I": "0", "P": "0.5", "N": "0"}
"""Inspect's letters: correct, incorrect, partial, no answer."""
VERSION_UNKNOWN: Final = "unknown"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One judgement. `value` is decimal text; without one it is an annotation."""

    trajectory_id: str
    verifier: str
    verifier_version: str = ""
    value: str = ""
    label: str = ""
    text: str = ""
    sequence_number: int | None = None
    head_hash: str = ""
    details: Any = None
    judged_at: int = 0
    tenant: str = ""


def read_rewards(
    source: Source, kind: str, known: Iterable[str], verifier: str = "", version: str = ""
) -> list[Judged]:
    """Return the judgements of one file. `kind` is auto, rows, tau-bench, tau2-bench, inspect or swe-bench.

    `known` are the trajectories that instance names are looked for in. `verifier` and `version` stand where the file
    names none. Raises `UserError` for a file that is none of these.
    """
    kind = _detect(source) if kind == "auto" else kind
    readers = {
        "tau-bench": lambda: _tau_bench(source, verifier or "tau-bench", version or "1"),
        "tau2-bench": lambda: _tau2_bench(source, verifier or "tau2-bench", version or "1"),
        "inspect": lambda: _inspect(source, verifier, version),
        "swe-bench": lambda: _swe_bench(source, sorted(known), verifier or "swe-bench", version or "1"),
        "rows": lambda: _rows(source, verifier, version),
    }
    if kind not in readers:
        raise UserError(f"import rewards: kind '{kind}' is not known; one of auto, {', '.join(readers)}")
    found = list(readers[kind]())
    if not found:
        raise UserError(f"{source.name}: holds no result that judges a trajectory ({kind})")
    return found


def _detect(source: Source) -> str:
    head = source.head()
    if importer("inspect").sniff(head, source.name) >= 50:
        return "inspect"
    for name in ("tau2-bench", "tau-bench"):
        if importer(name).sniff(head, source.name) >= 50:
            return name
    return "swe-bench" if b"resolved" in head and head.lstrip()[:1] == b"{" else "rows"


def _kept(source: Source, name: str, kinds: tuple[str, ...]) -> Iterator[tuple[str, str, Any, int]]:
    """Yield (trajectory, kind, value, time) of the records that an importer keeps verbatim."""
    for item in importer(name).read(source, ReadOptions(ended=True), Loss()):
        body = item.payload
        if isinstance(body, SourceKept) and body.kind in kinds and isinstance(body.raw, str):
            yield item.trajectory_id, body.kind, msgspec.json.decode(body.raw), item.recorded_at


def _tau_bench(source: Source, verifier: str, version: str) -> Iterator[Judged]:
    for trajectory_id, _, value, at in _kept(source, "tau-bench", ("reward",)):
        task = _object(_object(value.get("info")).get("task"))
        details = {
            "task_id": value.get("task_id"),
            "trial": value.get("trial"),
            "environment": f"tau-bench/{source.stem}",
            "ground_truth": {"actions": task.get("actions"), "outputs": task.get("outputs")},
            "arguments": {"task_id": value.get("task_id")},
        }
        yield _judged(trajectory_id, verifier, version, value.get("reward"), details=details, judged_at=at)


def _tau2_bench(source: Source, verifier: str, version: str) -> Iterator[Judged]:
    """What each simulation's `reward_info` says; a simulation without one, or cut off before it, judges nothing."""
    for trajectory_id, _, value, at in _kept(source, "tau2-bench", ("reward",)):
        info = _object(value.get("reward_info"))
        if info.get("reward") is None:
            continue
        details = {
            "task_id": value.get("task_id"),
            "trial": value.get("trial"),
            "environment": f"tau2-bench/{source.stem}",
            "basis": info.get("reward_basis"),
            "breakdown": info.get("reward_breakdown"),
            "arguments": {"task_id": value.get("task_id")},
        }
        yield _judged(trajectory_id, verifier, version, info["reward"], details=details, judged_at=at)


def _inspect(source: Source, verifier: str, version: str) -> Iterator[Judged]:
    made = ""
    for trajectory_id, kind, value, at in _kept(source, "inspect", ("score", "eval eval")):
        if kind == "eval eval":
            packages = value.get("packages")
            made = str(packages.get("inspect_ai") or "") if isinstance(packages, dict) else ""
            continue
        score = value.get("score")
        if value.get("intermediate") or not isinstance(score, dict):
            continue
        number = score.get("value")
        if isinstance(number, (dict, list)):
            continue
        if isinstance(number, str):
            number = LETTERS.get(number, number)
        if number is None:
            continue
        details = {
            "ground_truth": value.get("target"),
            "answer": score.get("answer"),
            "explanation": score.get("explanation"),
        }
        name = verifier or f"inspect/{value.get('scorer') or 'scorer'}"
        yield _judged(trajectory_id, name, version or made or VERSION_UNKNOWN, number, details=details, judged_at=at)


def _swe_bench(source: Source, known: list[str], verifier: str, version: str) -> Iterator[Judged]:
    report = _json(source)
    if not isinstance(report, dict):
        raise UserError(f"{source.name}: no SWE-bench report: not an object")
    verdicts: dict[str, bool] = {}
    for key, passed in (
        ("resolved_ids", True),
        ("unresolved_ids", False),
        ("error_ids", False),
        ("empty_patch_ids", False),
    ):
        verdicts.update(dict.fromkeys(map(str, report.get(key) or ()), passed))
    for name, one in report.items():
        if isinstance(one, dict) and isinstance(one.get("resolved"), bool):
            verdicts[name] = one["resolved"]
    for name, passed in sorted(verdicts.items()):
        details = {"instance_id": name, "environment": f"swe-bench/{name}", "arguments": {"instance_id": name}}
        for trajectory_id in known:
            if f"/{name}" in f"/{trajectory_id}" and not _goes_on(trajectory_id, name):
                yield _judged(trajectory_id, verifier, version, int(passed), details=details)


def _goes_on(trajectory_id: str, name: str) -> bool:
    """Return whether the instance's name is only the beginning of another's (`x-1` in `x-12`)."""
    return trajectory_id.partition(name)[2][:1].isalnum()


def _rows(source: Source, verifier: str, version: str) -> Iterator[Judged]:
    for place, row in enumerate(_listed(source), 1):
        if not isinstance(row, dict) or not row.get("trajectory_id"):
            raise UserError(f"{source.name}: row {place}: has no trajectory_id")
        name = str(row.get("verifier") or verifier)
        if not name:
            raise UserError(f"{source.name}: row {place}: names no verifier; add the key or give --verifier")
        value = next((row[key] for key in ("value", "reward", "score") if row.get(key) not in (None, "")), None)
        if value is None and not row.get("label"):
            raise UserError(f"{source.name}: row {place}: has neither value nor label")
        at = row.get("judged_at")
        seq = row.get("sequence_number")
        yield _judged(
            str(row["trajectory_id"]), name, str(row.get("verifier_version") or row.get("version") or version), value,
            label=str(row.get("label") or ""), text=str(row.get("text") or ""), details=row.get("details"),
            judged_at=(time_us(at) or 0) if at else 0, head_hash=str(row.get("head_hash") or ""),
            sequence_number=None if seq in (None, "") else int(str(seq)), tenant=str(row.get("tenant") or ""),
        )  # fmt: skip


def _listed(source: Source) -> list[Any]:
    data = source.read()
    if source.name.endswith(".csv"):
        return list(csv.DictReader(io.StringIO(data.decode())))
    try:
        value = msgspec.json.decode(data)
        return value if isinstance(value, list) else [value]
    except msgspec.DecodeError:
        pass
    try:
        return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise UserError(f"{source.name}: neither JSON, JSON lines nor CSV: {error}") from None


def _json(source: Source) -> Any:
    try:
        return msgspec.json.decode(source.read())
    except msgspec.DecodeError as error:
        raise UserError(f"{source.name}: not JSON: {error}") from None


def _judged(trajectory_id: str, verifier: str, version: str, value: Any, *, details: Any = None, **more: Any) -> Judged:
    return Judged(
        trajectory_id=trajectory_id, verifier=verifier, verifier_version=version, value=_decimal(value),
        details=None if details is None else to_tree_lossy(details)[0], **more,
    )  # fmt: skip


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _decimal(value: Any) -> str:
    """Return a value as decimal text: true is 1; "" for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    text = str(value).strip()
    try:
        float(text)
    except ValueError:
        raise UserError(f"reward {ascii(text[:40])}: no number") from None
    return text.removesuffix(".0")
