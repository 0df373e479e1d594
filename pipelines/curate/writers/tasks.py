"""RLVR tasks, one spelling for each trainer family. Environment and verifier are references; the answer is never in
the prompt. Trees whose keys differ from task to task are JSON text, so that no reader fills them with nulls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import pyarrow as pa

from .family import FileFacts, JsonLines, ParquetRows, count, spoken, texts
from .trl import schema_of

if TYPE_CHECKING:
    from ..rlvr import Task

SOURCE: Final = "trajlake"
_PROMPT: Final = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


class TaskWriter(Protocol):
    """A family's writer of tasks."""

    family: str
    refused: dict[str, int]

    def write(self, task: Task) -> None: ...

    def close(self) -> list[FileFacts]: ...


def answer_text(task: Task) -> str:
    """Return the ground truth as text: itself, or JSON; "" where there is none."""
    truth = task.ground_truth
    return "" if truth is None else truth if isinstance(truth, str) else msgspec.json.encode(truth).decode()


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def info_of(task: Task) -> dict[str, Any]:
    """Return what a verifier and an environment are told, apart from the prompt."""
    facts = task.facts
    return {
        "task_id": facts["task_id"],
        "environment": task.environment,
        "verifier": facts["verifier"],
        "verifier_version": facts["verifier_version"],
        "verifier_arguments": task.verifier_arguments,
        "pass": {"n": facts["pass_n"], "k": facts["pass_k"], "policy": facts["pass_policy"]},
        "split_group": facts["split_group"],
    }


def is_plain(task: Task) -> bool:
    """Return whether a prompt is texts of roles alone, as struct columns can hold it."""
    return all(set(one) <= {"role", "content"} and isinstance(spoken(one)["content"], str) for one in task.prompt)


class _Struct:
    """Shared by verl and SkyRL: Parquet with a struct prompt; a prompt with calls in it is refused (`prompt`)."""

    family = ""
    schema: pa.Schema

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._rows = ParquetRows(folder, self.family, self.schema)
        self._number = 0

    def write(self, task: Task) -> None:
        if not is_plain(task):
            count(self.refused, "prompt")
            return
        row = self.row(task, self._number)
        self._rows.add(task.facts["split"], row, len(str(row)))
        self._number += 1

    def row(self, task: Task, number: int) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> list[FileFacts]:
        return self._rows.close()


class VerlRlWriter(_Struct):
    """verl: `reward_model.ground_truth`; each tool's `create_kwargs` and all other trees are one JSON text."""

    family = "verl-rl"
    schema = pa.schema(
        [
            ("data_source", pa.string()), ("prompt", _PROMPT), ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            ("extra_info", pa.struct([
                ("index", pa.int64()), ("split", pa.string()), ("need_tools_kwargs", pa.bool_()),
                ("tools_kwargs", pa.string()), ("interaction_kwargs", pa.string()), ("info", pa.string()),
            ])),
            ("agent_name", pa.string()),
        ]
    )  # fmt: skip

    def row(self, task: Task, number: int) -> dict[str, Any]:
        names = [one["function"]["name"] for one in task.tools or ()]
        kwargs = {name: json_text({"create_kwargs": {"ground_truth": answer_text(task)}}) for name in names}
        return {
            "data_source": SOURCE,
            "prompt": [spoken(one) for one in task.prompt],
            "ability": "agent",
            "reward_model": {"style": "rule", "ground_truth": answer_text(task)},
            "extra_info": {
                "index": number,
                "split": task.facts["split"],
                "need_tools_kwargs": bool(names),
                "tools_kwargs": json_text(kwargs),
                "interaction_kwargs": json_text({"environment": task.environment}),
                "info": json_text(info_of(task)),
            },
            "agent_name": "tool_agent",
        }


class SkyRlTaskWriter(_Struct):
    """SkyRL: `env_class`, `reward_spec`."""

    family = "skyrl-rl"
    schema = pa.schema(
        [
            ("data_source", pa.string()), ("prompt", _PROMPT), ("env_class", pa.string()),
            ("reward_spec", pa.struct([("method", pa.string()), ("ground_truth", pa.string())])),
            ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string()), ("info", pa.string())])),
        ]
    )  # fmt: skip

    def row(self, task: Task, number: int) -> dict[str, Any]:
        environment = task.environment
        return {
            "data_source": SOURCE,
            "prompt": [spoken(one) for one in task.prompt],
            "env_class": environment if isinstance(environment, str) else SOURCE,
            "reward_spec": {"method": str(task.facts["verifier"]), "ground_truth": answer_text(task)},
            "extra_info": {"index": number, "split": task.facts["split"], "info": json_text(info_of(task))},
        }


class VerifiersWriter:
    """verifiers and prime-rl: `prompt`, `answer`, and `info` as JSON text, because rows differ in it."""

    family = "verifiers"

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        self._lines = JsonLines(folder, self.family)

    def write(self, task: Task) -> None:
        row = {
            "prompt": [spoken(one) for one in task.prompt],
            "answer": answer_text(task),
            "info": json_text({**info_of(task), "tools": task.tools}),
            "task": task.facts["task_id"],
        }
        self._lines.add(task.facts["split"], row)

    def close(self) -> list[FileFacts]:
        return self._lines.close()


class TrlGrpoWriter:
    """TRL GRPO: every column beside `prompt` becomes a reward argument; `environment` routes and is consumed."""

    family = "trl-grpo"

    def __init__(self, folder: str) -> None:
        self.refused: dict[str, int] = {}
        names = ("task_id", "ground_truth", "environment", "verifier", "verifier_version", "verifier_arguments", "info")
        self._rows = ParquetRows(folder, self.family, schema_of(("prompt",), names))

    def write(self, task: Task) -> None:
        environment = task.environment
        row = {
            "prompt": texts(spoken(one) for one in task.prompt),
            "task_id": task.facts["task_id"],
            "ground_truth": answer_text(task),
            "environment": environment if isinstance(environment, str) else json_text(environment),
            "verifier": task.facts["verifier"],
            "verifier_version": task.facts["verifier_version"],
            "verifier_arguments": json_text(task.verifier_arguments),
            "info": json_text(info_of(task)),
        }
        self._rows.add(task.facts["split"], row, sum(map(len, row["prompt"])))

    def close(self) -> list[FileFacts]:
        return self._rows.close()
