"""The loss report of one imported file: what became of its records. JSON in the root, text for people.

It stands at `imports/<sha256 of the file>/<mapping version>.json`, is shipped like a blob and fills the lake
table `imports`. It holds no time of its own, so importing again gives the same bytes. The same file under a
second tenant stands beside it as `<mapping version>.<tenant>.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trajlake.runtime.env import read_file, write_atomically
from trajlake.runtime.root import Root


class LossReport(msgspec.Struct, frozen=True, kw_only=True):
    """One file under one mapping version. `trajectories` maps id -> number of events the file gives it.

    `records` counts seen, mapped, kept_raw, skipped, held_back; `by_kind` splits each by record kind.
    """

    tenant: str
    sha256: str
    mapping_version: int
    format: str
    name: str
    bytes: int
    trajectories: dict[str, int]
    records: dict[str, int]
    by_kind: dict[str, dict[str, int]]
    notes: dict[str, int] = {}
    problems: list[str] = []
    problem_count: int = 0
    conflicts: dict[str, str] = {}
    ended: bool = False
    opening: str = ""


_decoder = msgspec.json.Decoder(LossReport)


def report_path(root: Root, sha256: str, mapping_version: int, tenant: str) -> str:
    """Return where the report of a file stands, or would stand, for a tenant."""
    folder = root.import_folder(sha256)
    path = f"{folder}/{mapping_version}.json"
    found = read_report(root, path)
    return path if found is None or found.tenant == tenant else f"{folder}/{mapping_version}.{tenant}.json"


def read_report(root: Root, path: str) -> LossReport | None:
    """Return the report at a path; None if there is none, or what stands there is none."""
    try:
        return _decoder.decode(read_file(root.env, path))
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def find_report(root: Root, sha256: str, mapping_version: int, tenant: str) -> LossReport | None:
    """Return the report of a file that this root has imported for a tenant, or None."""
    found = read_report(root, report_path(root, sha256, mapping_version, tenant))
    return found if found is not None and found.tenant == tenant else None


def write_report(root: Root, report: LossReport) -> None:
    """Store a report durably; the events it speaks of, and the source's blob, are durable before."""
    path = report_path(root, report.sha256, report.mapping_version, report.tenant)
    root.folders.store(path.rpartition("/")[0], lambda: write_atomically(root.env, path, report_text(report)))


def report_text(report: LossReport) -> bytes:
    """Return a report as it stands in a root, and in the lake's table `imports`."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def all_report_files(root: Root) -> Iterator[tuple[str, bytes, LossReport]]:
    """Yield (name below imports/, its bytes, the report) for every report in a root, by file hash."""
    try:
        folders = root.env.listdir(f"{root.path}/imports")
    except FileNotFoundError:
        return
    for sha256 in folders:
        for name in root.env.listdir(root.import_folder(sha256)):
            path = f"{root.import_folder(sha256)}/{name}"
            report = read_report(root, path) if name.endswith(".json") else None
            if report is not None:
                yield f"{sha256}/{name}", read_file(root.env, path), report


def all_reports(root: Root) -> Iterator[LossReport]:
    """Yield every report in a root, by file hash."""
    for _, _, report in all_report_files(root):
        yield report


def total(reports: Iterable[LossReport]) -> dict[str, Any]:
    """Return the sums over many reports: records, by kind, notes."""
    records: dict[str, int] = {}
    by_kind: dict[str, dict[str, int]] = {}
    notes: dict[str, int] = {}
    for report in reports:
        _sum(records, report.records)
        _sum(notes, report.notes)
        for group, tally in report.by_kind.items():
            _sum(by_kind.setdefault(group, {}), tally)
    return {"records": records, "by_kind": by_kind, "notes": notes}


def as_text(sums: dict[str, Any]) -> list[str]:
    """Return the lines that tell people what became of the records."""
    records = sums["records"]
    names = {"seen": "seen", "mapped": "mapped", "kept_raw": "kept raw", "skipped": "skipped", "held_back": "held back"}
    lines = ["records: " + ", ".join(f"{records.get(key, 0):,} {word}" for key, word in names.items())]
    for group in ("kept_raw", "skipped", "held_back"):
        tally = sums["by_kind"].get(group) or {}
        if tally:
            kinds = sorted(tally.items(), key=lambda pair: (-pair[1], pair[0]))
            shown = ", ".join(f"{kind} {count:,}" for kind, count in kinds[:8])
            lines.append(f"  {names[group]}: {shown}{f' and {len(kinds) - 8} more kinds' if len(kinds) > 8 else ''}")
    lines += [f"  note: {what}: {count:,}" for what, count in sorted(sums["notes"].items())]
    return lines


def _sum(into: dict[str, int], tally: dict[str, int]) -> None:
    for key, count in tally.items():
        into[key] = into.get(key, 0) + count
