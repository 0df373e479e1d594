"""The other side of the import bars: `PYTHON import_peers.py PEER CORPUS WORK`, run by a Python that has the peer.

agent-trajectory: `trajectory.normalize_many` over every session, records to JSON lines, DuckDB makes a table of them.
atif-sql: `atif-sql materialize --no-lake`: its artefacts alone, since the load into its lake downloads an extension.
Prints the seconds from files to queryable tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def agent_trajectory(corpus: Path, work: Path) -> float:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
    from trajectory import normalize_many  # type: ignore[import-not-found, unused-ignore]

    begun = time.perf_counter()
    files = sorted(corpus.rglob("*.jsonl"))
    results = normalize_many([{"source": "claude-code", "transcript": path.read_text()} for path in files])
    lines = work / "records.jsonl"
    with lines.open("w") as out:
        for path, result in zip(files, results, strict=True):
            for record in result["records"]:
                out.write(json.dumps({"session": path.stem, **record}) + "\n")
    connection = duckdb.connect(str(work / "records.duckdb"))
    connection.execute(
        "create table records as select * from read_json(?, format = 'newline_delimited', sample_size = -1)",
        [str(lines)],
    )
    return time.perf_counter() - begun


def atif_sql(corpus: Path, work: Path) -> float:
    command = str(Path(sys.executable).parent / "atif-sql")
    environment = os.environ | {"HOME": str(work), "ATIF_SQL_LAKE_ROOT": str(work / "lake")}
    copies = str(work / "corpus")
    read = [command, "materialize", "--source-root", str(corpus / "projects"), "--corpus-root", copies]
    begun = time.perf_counter()
    subprocess.run([*read, "--quiesce-seconds", "0", "--no-lake"], env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    peer, corpus_path, work_path = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    sys.stdout.write(
        f"{ {'agent-trajectory': agent_trajectory, 'atif-sql': atif_sql}[peer](corpus_path, work_path) }\n"
    )
