"""The contract's bytes: every golden vector comes out again. A failure here is a change of the format."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
import struct
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.golden import shapes
from tests.golden.vectors_file import vectors
from tests.schemas.same import same
from trajlake.schemas.canonical_json import canonical, number_text, parse_arguments
from trajlake.schemas.chain import commitment, event_hash, genesis, import_salt, make_event, verify
from trajlake.schemas.events import decode_payload, encode_payload
from trajlake.schemas.ids import trajectory_key
from trajlake.schemas.keys import arguments_hash, idempotency_key, same_as_key
from trajlake.schemas.values import from_tree, to_tree

CANONICAL = vectors("canonical_json")
KEYS = vectors("keys")
CHAIN = vectors("chain")
VALUES = vectors("values")["values"]
NAMES = {
    "dt": dt,
    "Decimal": Decimal,
    "ZoneInfo": ZoneInfo,
    "uuid": uuid,
    "pathlib": pathlib,
    "msgspec": msgspec,
    "shapes": shapes,
}


def named(rows: list[dict[str, Any]], key: str = "name") -> list[Any]:
    return [pytest.param(row, id=str(row[key])) for row in rows]


@pytest.mark.parametrize("row", named(CANONICAL["texts"]))
def test_canonical_json_is_what_a_javascript_engine_writes(row: dict[str, str]) -> None:
    assert canonical(json.loads(row["json"])) == row["canonical"].encode()


@pytest.mark.parametrize("row", named(CANONICAL["numbers"], "bits"))
def test_numbers_are_written_as_ecmascript_writes_them(row: dict[str, str]) -> None:
    assert number_text(struct.unpack(">d", bytes.fromhex(row["bits"]))[0]) == row["text"]


@pytest.mark.parametrize("row", named(KEYS["keys"]))
def test_argument_hashes_and_idempotency_keys_are_as_published(row: dict[str, Any]) -> None:
    assert arguments_hash(row["tree"]) == row["arguments_hash"]
    assert idempotency_key(row["tenant"], row["trajectory_id"], row["step"], row["n"], row["tree"]) == row["key"]


@pytest.mark.parametrize("row", KEYS["same_as"])
def test_keys_of_a_business_identity_are_as_published(row: dict[str, Any]) -> None:
    assert same_as_key(row["tenant"], row["trajectory_id"], row["tool"], row["identity"]) == row["key"]


@pytest.mark.parametrize("row", named(KEYS["hashed_before_tagging"]))
def test_what_the_rfc_would_lose_is_tagged_before_it_is_hashed(row: dict[str, Any]) -> None:
    value = parse_arguments(row["json"])
    assert arguments_hash(value) == row["arguments_hash"]
    assert arguments_hash(to_tree(value)) == row["arguments_hash"]


def test_the_chain_of_three_events_is_as_published() -> None:
    prev = genesis(CHAIN["tenant"], CHAIN["trajectory_id"])
    assert prev.hex() == CHAIN["genesis"]
    for row in CHAIN["events"]:
        bound = commitment(bytes.fromhex(row["salt"]), row["payload"].encode())
        assert bound.hex() == row["commitment"]
        assert prev.hex() == row["prev"]
        prev = event_hash(
            prev, CHAIN["tenant"], CHAIN["trajectory_id"], row["sequence_number"], row["type"], row["schema_version"],
            row["fencing_token"], row["turn"], row["recorded_at"], bound,
        )  # fmt: skip
        assert prev.hex() == row["hash"]


def test_events_made_from_structs_reproduce_the_published_payloads_and_hashes() -> None:
    prev, events = genesis(CHAIN["tenant"], CHAIN["trajectory_id"]), []
    for row in CHAIN["events"]:
        event = make_event(
            decode_payload(row["type"], row["payload"]),
            tenant=CHAIN["tenant"],
            trajectory_id=CHAIN["trajectory_id"],
            sequence_number=row["sequence_number"],
            fencing_token=row["fencing_token"],
            turn=row["turn"],
            recorded_at=row["recorded_at"],
            salt=bytes.fromhex(row["salt"]),
            prev=prev,
        )
        assert event.payload == row["payload"].encode()
        assert event.hash.hex() == row["hash"]
        assert encode_payload(event.body) == event.payload
        events.append(event)
        prev = event.hash
    assert verify(events) == []


def test_import_salts_and_trajectory_keys_are_as_published() -> None:
    row = CHAIN["import_salt"]
    salt = import_salt(row["format"], row["session"], row["first_record_hash"], row["sequence_number"])
    assert salt.hex() == row["salt"]
    assert trajectory_key(CHAIN["tenant"], CHAIN["trajectory_id"]).hex() == CHAIN["trajectory_key"]


@pytest.mark.parametrize("row", named(VALUES, "what"))
def test_the_value_matrix_is_written_and_read_as_published(row: dict[str, Any]) -> None:
    value = eval(row["python"], dict(NAMES))
    tree = to_tree(value)
    assert same(tree, row["tree"])
    assert same(from_tree(msgspec.json.decode(msgspec.json.encode(tree))), value)


def test_the_readme_publishes_the_matrix(project: pathlib.Path) -> None:
    readme = (project / "schemas" / "README.md").read_text(encoding="utf-8")
    for row in VALUES:
        assert matrix_line(row) in readme, f"schemas/README.md lacks the row {matrix_line(row)}"


def matrix_line(row: dict[str, Any]) -> str:
    tree = json.dumps(row["tree"], ensure_ascii=False)
    return f"| {row['what']} | {code(row['python'])} | {code(tree)} |"


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"
