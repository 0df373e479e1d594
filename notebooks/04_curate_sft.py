"""Cut an SFT set: see the funnel, ask why something went, look at a row as a trainer does, rebuild it.

TRAJLAKE_LAKE=trajlake-demo/lake TRAJLAKE_POLICY=policy.toml marimo edit notebooks/04_curate_sft.py
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import json
    import os
    import tempfile

    import marimo as mo
    import polars as pl

    from trajlake.pipelines.curate.cut import CutOptions, cut_sft
    from trajlake.pipelines.curate.loader import open_set
    from trajlake.pipelines.curate.policy import STARTER, load_policy, parse_policy
    from trajlake.pipelines.curate.rebuild import rebuild
    from trajlake.runtime.settings import load

    lake = load().lake
    named = os.environ.get("TRAJLAKE_POLICY")
    policy = load_policy(named) if named else parse_policy(STARTER)
    folder = tempfile.mkdtemp(prefix="trajlake-set-")
    return CutOptions, cut_sft, folder, json, lake, load, mo, open_set, pl, policy, rebuild


@app.cell
def _(lake, mo, policy):
    mo.md(f"""
    # 1. What the policy lets in

    The lake is `{lake}`, the policy `{policy.policy.name}` (`{policy.sha256[:12]}`). A stage takes rows out
    and says why; nothing is changed on the way.
    """)


@app.cell
def _(CutOptions, cut_sft, folder, lake, policy):
    options = CutOptions(families=("openai", "trl"), pin=f"notebook-{policy.sha256[:12]}")
    done = cut_sft(lake, policy, f"{folder}/set", options)
    return done, options


@app.cell
def _(done, mo):
    steps = [
        {
            "stage": step.stage,
            "unit": step.unit,
            "in": step.before,
            "out": step.after,
            "dropped": str(step.dropped or ""),
        }
        for step in done.funnel.steps
    ]
    mo.ui.table(steps, selection=None)
    return (steps,)


@app.cell
def _(mo):
    mo.md("""
    # 2. Why something went

    Every drop has a row in the ledger: the trajectory, its segment, the stage, the reason and what was seen.
    """)


@app.cell
def _(folder, mo, pl):
    ledger = pl.read_parquet(f"{folder}/set/ledger.parquet")
    mo.ui.table(ledger.group_by("stage", "reason").len().sort("stage", "reason").to_dicts(), selection=None)
    return (ledger,)


@app.cell
def _(mo):
    mo.md("""
    # 3. A row as a trainer reads it

    One context segment: what the model was shown, and which replies are targets.
    """)


@app.cell
def _(done, folder, json, mo, open_set):
    shown = []
    if done.rows:
        row = next(open_set(f"{folder}/set").rows())
        shown = [
            {
                "role": message["role"],
                "trains": flag,
                "text": str(message.get("content") or message.get("tool_calls"))[:120],
            }
            for message, flag in zip(json.loads(row["messages_json"]), row["train"], strict=True)
        ]
    mo.ui.table(shown, selection=None)
    return (shown,)


@app.cell
def _(mo):
    mo.md("""
    # 4. The same bytes again

    The manifest names snapshot, policy, libraries and seeds; the pin keeps the files. Nothing listed: the same.
    """)


@app.cell
def _(folder, lake, mo, options, rebuild):
    again = rebuild(lake, f"{folder}/set", f"{folder}/again", options)
    mo.md(f"root `{again.manifest.row_root}`, differences: {again.differences or 'none'}")
    return (again,)


if __name__ == "__main__":
    app.run()
