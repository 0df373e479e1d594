"""The chain is text so that SQL can check it: DuckDB computes the published hashes from the published columns."""

from __future__ import annotations

import duckdb

from tests.golden.vectors_file import vectors

HASHES = """
with bound as (
    select *, sha256(salt || chr(10) || payload) as bound from rows
)
select
    sequence_number,
    bound as commitment,
    sha256(concat_ws(
        chr(10), prev, tenant, trajectory_id, sequence_number, type, schema_version, fencing_token, turn, recorded_at,
        bound
    )) as hash
from bound
order by sequence_number
"""


def test_duckdb_computes_the_published_commitments_and_hashes() -> None:
    chain = vectors("chain")
    columns = ["sequence_number", "type", "schema_version", "fencing_token", "turn", "recorded_at", "salt", "payload"]
    with duckdb.connect() as connection:
        connection.execute(
            "create table rows (tenant text, trajectory_id text, sequence_number bigint, type text, "
            "schema_version int, fencing_token bigint, turn int, recorded_at bigint, salt text, payload text, "
            "prev text)"
        )
        for row in chain["events"]:
            values = [chain["tenant"], chain["trajectory_id"], *(row[name] for name in columns), row["prev"]]
            connection.execute("insert into rows values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        found = connection.execute(HASHES).fetchall()
        start = connection.execute(
            "select sha256(concat_ws(chr(10), 'trajlake chain 1', ?, ?))", [chain["tenant"], chain["trajectory_id"]]
        ).fetchone()
    assert found == [(row["sequence_number"], row["commitment"], row["hash"]) for row in chain["events"]]
    assert start == (chain["genesis"],)
