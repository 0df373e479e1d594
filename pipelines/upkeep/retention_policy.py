"""The retention policy: a TOML file, the same that audits read for what is kept too long or destroyed early.

    [[keep]]                    # blobs and payloads; maximum_days is when retention takes them
    tenant = "*"                # or one tenant
    what = "blobs"              # blobs | payloads
    minimum_days = 30           # read by the audit only, and checked here: never above maximum_days
    maximum_days = 90
    types = ["ToolResult"]      # payloads only: these event types; all when absent
    kind = "live"               # live | imported | judgement; all when absent

    [[expire]]                  # the whole trajectory: only its row in `trajectories` stays
    tenant = "*"
    days = 730

Ages count from the newest event that names a blob, or from a trajectory's last event; open trajectories stay whole.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.schemas.events import NAME_OF_CODE

KINDS = ("live", "imported", "judgement")


class PolicyError(LakeError):
    exit_code = 2


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. `what` is blobs, payloads or trajectories; `types` None means every type."""

    what: str
    tenant: str
    days: int
    types: frozenset[str] | None = None
    kind: str | None = None

    def applies(self, tenant: str, kind: str) -> bool:
        return self.tenant in ("*", tenant) and self.kind in (None, kind)


def read_policy(path: str) -> list[Rule]:
    """Return the rules of a policy file. Raises `PolicyError` with the file and the entry that is wrong."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        raise PolicyError(f"{path}: no such file; name a policy with --policy") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: no TOML: {str(error).splitlines()[0]}") from None
    return rules_of(document, path)


def rules_of(document: Mapping[str, Any], path: str) -> list[Rule]:
    """Return the rules of a parsed policy; see `read_policy`."""
    unknown = set(document) - {"keep", "expire"}
    if unknown:
        raise PolicyError(f"{path}: unknown table {sorted(unknown)[0]!r}; there are [[keep]] and [[expire]]")
    rules = []
    for kind in ("keep", "expire"):
        entries = document.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise PolicyError(f"{path}: {kind} must be written as [[{kind}]] tables")
        for place, entry in enumerate(entries):
            rule = _rule(kind, entry, f"{path}: [[{kind}]] number {place + 1}")
            if rule is not None:
                rules.append(rule)
    if not rules:
        raise PolicyError(f"{path}: says nothing that retention could take; give a [[keep]] with maximum_days")
    return rules


def _rule(table: str, entry: dict[str, Any], where: str) -> Rule | None:
    names = {"keep": {"tenant", "what", "minimum_days", "maximum_days", "types", "kind"},
             "expire": {"tenant", "days", "kind"}}[table]  # fmt: skip
    unknown = set(entry) - names
    if unknown:
        raise PolicyError(f"{where}: unknown name {sorted(unknown)[0]!r}; it takes {', '.join(sorted(names))}")
    kind = entry.get("kind")
    if kind is not None and kind not in KINDS:
        raise PolicyError(f"{where}: kind must be one of {', '.join(KINDS)}")
    tenant = str(entry.get("tenant", "*"))
    if table == "expire":
        return Rule(what="trajectories", tenant=tenant, days=_days(entry.get("days"), "days", where), kind=kind)
    if entry.get("what") not in ("blobs", "payloads"):
        raise PolicyError(f"{where}: what must be 'blobs' or 'payloads'")
    if entry.get("maximum_days") is None:
        return None  # the audit's alone: kept for ever
    days = _days(entry["maximum_days"], "maximum_days", where)
    if entry.get("minimum_days") is not None and _days(entry["minimum_days"], "minimum_days", where) > days:
        raise PolicyError(f"{where}: minimum_days is above maximum_days")
    types = entry.get("types")
    if types is not None:
        known = set(NAME_OF_CODE.values())
        if entry["what"] != "payloads" or not isinstance(types, list) or not set(map(str, types)) <= known:
            raise PolicyError(f"{where}: types is a list of event types, for payloads only")
    return Rule(
        what=entry["what"], tenant=tenant, days=days, types=None if types is None else frozenset(types), kind=kind
    )


def _days(value: Any, name: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PolicyError(f"{where}: {name} must be a whole number of days")
    return value
