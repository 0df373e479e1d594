"""Mutants that no fixture can tell apart, each with the reason: by class where one holds for many, else by name."""

from __future__ import annotations

import re
from typing import Final

NUMBERS: Final = r"(sequence_number|_seq|void_at|last_lost)"
CLASSES: Final[dict[str, str]] = {
    r"drop@\d+: (where|and) in_scope\([\w.]+, [\w.]+\)$": (
        "tenant and day stand in every part of a statement so that files are skipped; another one of the statement or "
        "of its facts still filters the rows. That dropping all of them at once is noticed is a test of its own"
    ),
    rf"bound@\d+: .*{NUMBERS} (<|>|<=|>=) [\w.]*{NUMBERS}": (
        "two different events of one trajectory never share a sequence number, so < and <= say the same"
    ),
}
"""Pattern of a mutant's name -> why its kind is equivalent."""

_ANY = "any other word does where none is recorded"
_HASH = "the hash is made of tenant, trajectory and number"
_NO_COST = "rows without a cost have no units, and later predicates filter"
_LIMITED = "counts turns of trajectories that no limit is joined to afterwards"
_EACH = "each of the three alone finds any gap or repetition; they only save work"
_WIDER = "widens what is looked at; replies are filtered at the end"
_REF = "a reference is always a number or a pair"
NAMED: Final[dict[str, dict[str, str]]] = {
    "Q03": {"word@21": _ANY},
    "Q11": {
        "word@16": "only names the act in the finding's text",
        "drop@23": "held back and conflicting rows carry no token below a tenure before them",
    },
    "Q12": {
        "word@32": "a late result has no verdict, which counts as executed",
        "drop@42": _NO_COST,
        "either@42": _NO_COST,
        "drop@46": _NO_COST,
        "drop@56": _NO_COST,
        "drop@63": _LIMITED,
        "either@63": _LIMITED,
        "reverse@67": "the roll-backs behind events part them into the same groups as those before",
    },
    "Q13": {"word@38": "every event has a type; only an unknown one would take the default"},
    "Q15": {"drop@10": _EACH, "equal@10": _EACH, "one@10": _EACH},
    "Q16b": {"drop@4": _HASH, "drop@5": _HASH, "drop@21": _HASH, "drop@22": _HASH, "drop@23": _HASH},
    "Q18": {
        "drop@17": "only an accepted constraint has a predicate",
        "outer@49": "arguments that no row tells count as matching, and so does an action without a row",
        "word@84": "any verdict but ask forbids",
    },
    "Q19": {"word@6": _ANY, "word@16": _ANY},
    "Q20": {"default@29": "whether a hold came late matters only where there is one"},
    "Q22": {
        "drop@8": _WIDER,
        "either@8": _WIDER,
        "most@18": _WIDER,
        "default@42": _REF,
        "default@43": _REF,
        "default@53": _REF,
    },
    "Q23": {"null@40": _REF},
    "Q24": {"bound@45": "needs an export without a list, which would concern every other story: a test of its own"},
    "X01": {"word@16": _ANY},
    "X04": {
        "drop@14": "an action's id begins with the number of its proposal, which the next line compares",
        "bound@15": "an action's proposal and a resume never share a number",
        "drop@30": "only a plan has a plan",
    },
}
"""Control -> mutant (operator@line) -> why it is equivalent, or where it is tested otherwise."""


def reason(control: str, mutant: str) -> str | None:
    """Return why a surviving mutant is equivalent, or None if nothing says so."""
    for pattern, why in CLASSES.items():
        if re.match(pattern, mutant):
            return why
    return NAMED.get(control, {}).get(mutant.partition(":")[0])


_OF_ONE = "on audited\\.tenant = .* and audited\\.trajectory_id = "
_TWICE_FILTERED = "(anchored_heads|audited|hidden_secrets|payload_counts|payload_faults|standing)"
FACTS: Final[dict[str, str]] = {
    rf"(approval_requests|drifts|ends|intent_records|roll_backs|versions) (drop|either)@14: {_OF_ONE}.*is_live$": (
        "every control that reads the fact joins a live fact of the same trajectory, and takes a row twice as once"
    ),
    rf"{_TWICE_FILTERED} drop@\d+: (where|and) in_scope\(": (
        "every control that reads the fact filters by tenant and day again"
    ),
    r"anchored_heads drop@[37]: where getvariable\('audit_tenant'\)": "the last line filters by tenant again",
    r"audited word@45: ": "every kind but imported and judgement is live",
    r"budget_grants drop@24: ": "limits that are null have no units",
    rf"hidden_secrets (drop|either)@22: {_OF_ONE}": (
        "every event in scope has its row in audited, so the join only gives a day, and a row twice is taken as once"
    ),
    r"hidden_secrets (drop|either)@3: ": "what names no event joins none",
    r"intent_records either@15: ": "every control that reads the fact names the types of event it means",
    rf"payload_counts (drop|either)@10: {_OF_ONE}": (
        "every event in scope has its row in audited, so the join only gives a day, and Q20 asks whether there are any"
    ),
    r"standing bound@15: ": "what is kept last is the checkpoint's own event, never a record of the intent state",
}
"""Pattern of a fact's name and its mutant -> why no control says anything else."""


def fact_reason(fact: str, mutant: str) -> str | None:
    """Return why a surviving mutant of a fact is equivalent, or None if nothing says so."""
    return next((why for pattern, why in FACTS.items() if re.match(pattern, f"{fact} {mutant}")), None)
