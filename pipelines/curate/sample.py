"""A training row: messages, which of them train, and everything that says where it comes from. The canonical table.

Every writer starts from a `Sample`. A row ends with its last trained reply; what follows it in the segment would
only be cost. Identity is the trajectory, the segment, the policy and the redaction, so it is the same every night.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

REDACTION_VERSION: Final = 1
REPLY: Final = b'{"role":"assistant"'
"""How the text of a model's message begins."""

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode

ROW_SCHEMA: Final = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("task_id", pa.string()),
        pa.field("trajectory_id", pa.string(), nullable=False),
        pa.field("segment_no", pa.int32(), nullable=False),
        pa.field("step_no", pa.int32()),
        pa.field("segment_kind", pa.string(), nullable=False),
        pa.field("purpose", pa.string(), nullable=False),
        pa.field("is_last", pa.bool_(), nullable=False),
        pa.field("seq_from", pa.int64(), nullable=False),
        pa.field("seq_to", pa.int64(), nullable=False),
        pa.field("journal_head", pa.string(), nullable=False),
        pa.field("messages_json", pa.string(), nullable=False),
        pa.field("tools_json", pa.string()),
        pa.field("train", pa.list_(pa.bool_()), nullable=False),
        pa.field("model_rev", pa.list_(pa.string()), nullable=False),
        pa.field("system_sha", pa.string(), nullable=False),
        pa.field("tools_sha", pa.string(), nullable=False),
        pa.field("template_sha", pa.string(), nullable=False),
        pa.field("tokenizer_sha", pa.string(), nullable=False),
        pa.field("ctx_msg_hashes", pa.list_(pa.string()), nullable=False),
        pa.field("reward", pa.float64()),
        pa.field("reward_source", pa.string()),
        pa.field("verifier_ver", pa.string()),
        pa.field("stop_reason", pa.string(), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("pass_n", pa.int64()),
        pa.field("pass_k", pa.int64()),
        pa.field("pass_policy", pa.string()),
        pa.field("split_group", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("dedup_cluster", pa.string()),
        pa.field("redactions", pa.string()),
        pa.field("surrogates", pa.int64(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        pa.field("target_tokens", pa.int64(), nullable=False),
        pa.field("prompt_ids_json", pa.string()),
        pa.field("completion_ids_json", pa.string()),
        pa.field("logprobs_json", pa.string()),
    ]
)
"""Explicit, so that a column that is null in the first rows keeps its type."""


class Sample(msgspec.Struct, kw_only=True):
    """One row. `texts` are OpenAI chat messages, each as msgspec writes it with its role first, and go into files as
    they stand; `train` has one flag per message; `tools_json` is the text of the tools; `facts` the other columns."""

    texts: list[bytes]
    train: list[bool]
    tools_json: str | None
    facts: dict[str, Any]

    @property
    def sample_id(self) -> str:
        return str(self.facts["sample_id"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages as new trees."""
        return [_decode(text) for text in self.texts]

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """Return the tools as a new tree."""
        return None if self.tools_json is None else msgspec.json.decode(self.tools_json)

    def as_row(self) -> dict[str, Any]:
        """Return the row of the canonical table."""
        return {
            **self.facts,
            "messages_json": (b"[" + b",".join(self.texts) + b"]").decode(),
            "tools_json": self.tools_json,
            "train": self.train,
        }

    def whole_mask(self) -> bool:
        """Return whether every assistant message trains."""
        return all(flag for text, flag in zip(self.texts, self.train, strict=True) if text.startswith(REPLY))

    def steps(self) -> Iterable[Sample]:
        """Yield one row for each trained message: all before it as prompt, it alone as target."""
        places = [place for place, flag in enumerate(self.train) if flag]
        for number, place in enumerate(places):
            facts = {
                **self.facts,
                "step_no": number,
                "sample_id": self.sample_id[:32] + _digest(self.sample_id, str(number)),
                "is_last": bool(self.facts["is_last"]) and place == places[-1],
            }
            for name in ("prompt_ids_json", "completion_ids_json", "logprobs_json"):
                facts[name] = _of_place(self.facts[name], place)
            yield Sample(
                texts=self.texts[: place + 1],
                train=[False] * place + [True],
                tools_json=self.tools_json,
                facts=facts,
            )


def sample_id(row_key: str, segment_no: int, policy_sha256: str, redaction: int) -> str:
    """Return the id of a row: its trajectory's key, then a hash of segment, policy and redaction."""
    return row_key + _digest(row_key, str(segment_no), policy_sha256, str(redaction))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(("trajlake sample 1", *parts)).encode()).hexdigest()[:32]


def _of_place(text: str | None, place: int) -> str | None:
    if text is None:
        return None
    found = msgspec.json.decode(text).get(str(place))
    return None if found is None else msgspec.json.encode({str(place): found}).decode()


def sample_of(row: Mapping[str, Any], policy_sha256: str) -> Sample:
    """Return the sample of a chosen candidate row (all its columns, and those the stages added)."""
    places: list[int] = row["train_places"]
    end = places[-1] + 1
    texts = [bytes(text) for text in _split(row["messages"])[:end]]
    train = [False] * end
    for place in places:
        train[place] = True
    ids, prompts = _token_ids(row["token_ids"], set(places))
    facts = {
        "sample_id": sample_id(row["row_key"], row["segment_no"], policy_sha256, 0),
        "tenant": row["tenant"],
        "task_id": row["task_id"],
        "trajectory_id": row["trajectory_id"],
        "segment_no": row["segment_no"],
        "step_no": None,
        "segment_kind": row["kind"],
        "purpose": row["purpose"],
        "is_last": row["is_last"],
        "seq_from": row["seq_from"],
        "seq_to": row["seq_to"],
        "journal_head": row["head_hash"],
        "model_rev": row["train_models"],
        "system_sha": row["system_sha"],
        "tools_sha": row["tools_sha"],
        "template_sha": row["template_sha"],
        "tokenizer_sha": row["tokenizer_sha"],
        "ctx_msg_hashes": row["context_hashes"],
        "reward": row["reward"],
        "reward_source": row["verifier"],
        "verifier_ver": row["verifier_version"],
        "stop_reason": row["stop_reason"],
        "truncated": row["truncated"],
        "pass_n": row["pass_n"],
        "pass_k": row["pass_k"],
        "pass_policy": row["pass_policy"],
        "split_group": row["split_group"],
        "split": row["split"],
        "dedup_cluster": row["dedup_cluster"],
        "redactions": None,
        "surrogates": row["surrogates"],
        "tokens": 0,
        "target_tokens": 0,
        "prompt_ids_json": prompts,
        "completion_ids_json": ids,
        "logprobs_json": _kept(row["logprobs"], set(places)),
    }
    return Sample(texts=texts, train=train, tools_json=row["tools"], facts=facts)


def _token_ids(text: str | None, places: set[int]) -> tuple[str | None, str | None]:
    """Return (completion ids, prompt ids) by message, as JSON text, where they were recorded."""
    if text is None:
        return None, None
    completions, prompts = {}, {}
    for place, value in msgspec.json.decode(text).items():
        if int(place) not in places:
            continue
        if isinstance(value, dict):
            for key in ("completion", "generation", "generation_token_ids", "completion_token_ids"):
                if key in value:
                    completions[place] = value[key]
            for key in ("prompt", "prompt_token_ids"):
                if key in value:
                    prompts[place] = value[key]
        else:
            completions[place] = value
    return _text(completions), _text(prompts)


def _kept(text: str | None, places: set[int]) -> str | None:
    if text is None:
        return None
    return _text({place: value for place, value in msgspec.json.decode(text).items() if int(place) in places})


def _text(tree: dict[str, Any]) -> str | None:
    return msgspec.json.encode(tree).decode() if tree else None
