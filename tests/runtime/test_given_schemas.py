"""Tools whose arguments are described by a schema that was found at run time."""

from __future__ import annotations

from typing import Any

import pytest

from trajlake.runtime.tools import InvalidArguments, ToolOptions, make_tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}


def body(**arguments: Any) -> Any:
    """Do it."""
    return arguments


def test_a_given_schema_is_offered_and_arguments_pass_through_it() -> None:
    tool = make_tool(body, ToolOptions(parameters=SCHEMA))
    assert tool.parameters == SCHEMA
    assert tool.bind({"b": 2, "a": 1}) == {"b": 2, "a": 1}
    assert tool.bind({"a": 1, "c": 3}) == {"a": 1, "c": 3}, "the schema does not forbid it"


@pytest.mark.parametrize(
    ("schema", "arguments", "told"),
    [
        (SCHEMA, {"b": 1}, "missing: a"),
        ({**SCHEMA, "additionalProperties": False}, {"a": 1, "c": 3}, "takes no c"),
        (SCHEMA, {"a": 1, "call": 3}, "takes no call"),
    ],
)
def test_what_does_not_fit_a_given_schema_is_refused_before_an_intent(schema: Any, arguments: Any, told: str) -> None:
    with pytest.raises(InvalidArguments, match=told):
        make_tool(body, ToolOptions(parameters=schema)).bind(arguments)


def test_another_schema_is_another_version_of_the_tools() -> None:
    one = make_tool(body, ToolOptions(parameters=SCHEMA))
    other = make_tool(body, ToolOptions(parameters={**SCHEMA, "required": []}))
    assert one.schema_hash != other.schema_hash
