"""Harbor's rules for ATIF documents (`../shared/FORMATS.md`, A1), written out here and not taken from a library."""

from __future__ import annotations

from datetime import datetime
from typing import Any

ROOT = {"schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
        "continued_trajectory_ref", "subagent_trajectories", "extra"}  # fmt: skip
AGENT = {"name", "version", "model_name", "tool_definitions", "extra"}
AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
STEP = {"step_id", "source", "message", "timestamp", "observation", "is_copied_context", "llm_call_count",
        "extra"} | AGENT_ONLY  # fmt: skip
CALL = {"tool_call_id", "function_name", "arguments", "extra"}
RESULT = {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
METRICS = {"prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids",
           "completion_token_ids", "logprobs", "extra"}  # fmt: skip
FINAL = {"total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps",
         "extra"}  # fmt: skip


def findings(document: dict[str, Any], place: str = "") -> list[str]:
    """Return what a document breaks, one line each."""
    found = _unknown(document, ROOT, place)
    if not str(document.get("schema_version", "")).startswith("ATIF-v1."):
        found.append(f"{place}/schema_version")
    agent = document.get("agent") or {}
    found += _unknown(agent, AGENT, f"{place}/agent")
    found += [f"{place}/agent/{key} is no string" for key in ("name", "version") if not isinstance(agent.get(key), str)]
    steps = document.get("steps") or []
    if not steps:
        found.append(f"{place}/steps is empty")
    for number, step in enumerate(steps):
        found += _step(step, number, f"{place}/steps/{number}")
    found += _unknown(document.get("final_metrics") or {}, FINAL, f"{place}/final_metrics")
    names = []
    for number, inner in enumerate(document.get("subagent_trajectories") or []):
        names.append(inner.get("trajectory_id"))
        found += findings(inner, f"{place}/subagent_trajectories/{number}")
    if None in names or len(set(names)) != len(names):
        found.append(f"{place}/subagent_trajectories: trajectory_id missing or repeated")
    return found


def _step(step: dict[str, Any], number: int, place: str) -> list[str]:
    found = _unknown(step, STEP, place)
    if step.get("step_id") != number + 1:
        found.append(f"{place}/step_id is {step.get('step_id')}")
    if step.get("source") not in ("system", "user", "agent"):
        found.append(f"{place}/source is {step.get('source')}")
    if not isinstance(step.get("message"), (str, list)):
        found.append(f"{place}/message is {step.get('message')!r}")
    if "timestamp" in step:
        datetime.fromisoformat(step["timestamp"])
    if step.get("source") != "agent":
        found += [f"{place}/{key} on a step that is no agent's" for key in AGENT_ONLY & set(step)]
    if step.get("llm_call_count") == 0 and {"metrics", "reasoning_content"} & set(step):
        found.append(f"{place}: metrics of a step without a model call")
    ids = []
    for call in step.get("tool_calls") or []:
        found += _unknown(call, CALL, f"{place}/tool_calls")
        ids.append(call.get("tool_call_id"))
        if not isinstance(call.get("arguments"), dict) or not isinstance(call.get("function_name"), str):
            found.append(f"{place}/tool_calls: arguments or name")
    for result in (step.get("observation") or {}).get("results", []):
        found += _unknown(result, RESULT, f"{place}/observation")
        if result.get("source_call_id") is not None and "tool_calls" in step and result["source_call_id"] not in ids:
            found.append(f"{place}/observation names no call of its step")
    found += _unknown(step.get("metrics") or {}, METRICS, f"{place}/metrics")
    return found


def _unknown(value: dict[str, Any], known: set[str], place: str) -> list[str]:
    return [f"{place}/{key} is no field of ATIF" for key in set(value) - known]
