"""Debugging by replay: go back to a turn, see what the model was shown, run the harness again, find where it parts.

trajlake demo
TRAJLAKE_LAKE=trajlake-demo/lake marimo edit notebooks/03_debug_by_replay.py
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    from trajlake.runtime.replaying.sources import open_source
    from trajlake.runtime.settings import load

    settings = load()
    source = open_source(lake=settings.lake, tenant=settings.tenant)
    ids = source.trajectory_ids()
    assert ids, "this lake holds no trajectory yet"
    return ids, mo, settings, source


@app.cell
def _(ids, mo, settings):
    mo.md(f"""
    # 1. What was the model shown?

    `{settings.lake}` holds {len(ids)} trajectories. The first look is at the last turn that asked a model: the context
    as it was delivered, where outputs were cut and what stood behind the cut, the budget, and every authorization.
    The same on the command line: `trajlake show ID --turn N --lake LAKE`.
    """)


@app.cell
def _(ids, source):
    from trajlake.runtime.branches.time_travel import text_of, turn_view

    record = source.record(ids[0])
    turn = record.outline.last_turn
    view = turn_view(record, turn)
    assert view is not None
    print(text_of(view, width=400))
    return record, text_of, turn, turn_view


@app.cell
def _(mo, turn):
    mo.md(f"""
    # 2. Turn by turn

    The budget that was left and the calls that were decided, from the prologue to turn {turn}. A fault in what was
    shown is the harness's, not the model's.
    """)


@app.cell
def _(record, turn, turn_view):
    rows = []
    for number in range(-1, turn + 1):
        seen = turn_view(record, number)
        if seen is not None:
            decided = [f"{one['tool']}: {one['decision']}" for one in seen.authorizations]
            cuts = sum(item.cut is not None for call in seen.calls for item in call.items)
            rows.append(
                {"turn": number, "items": sum(len(call.items) for call in seen.calls), "cuts": cuts,
                 "decided": ", ".join(decided), "left": str(seen.budget_left)}
            )  # fmt: skip
    rows


@app.cell
def _(mo):
    mo.md("""
    # 3. Does today's harness do the same?

    The real harness runs; model and tools are served from the record, nothing outside is touched. Every trajectory of
    the lake, with the agent that each record names. On the command line: `trajlake replay --all --lake LAKE`.
    """)


@app.cell
def _(ids, settings):
    from trajlake.runtime.replaying.many import Suite, Summary, check_all

    summary = Summary()
    suite = Suite(lake=settings.lake, tenant=settings.tenant)
    for report in check_all(suite, ids):
        summary.add(report)
        if report.verdict == "differs":
            print(report.text())
    print(summary.text())
    return (summary,)


@app.cell
def _(mo):
    mo.md("""
    # 4. Where do two trajectories part?

    The first turn whose action differs, the first whose context differs, and the source: model call, model drift,
    harness input, or environment. On the command line: `trajlake diverge A B --lake LAKE`.
    """)


@app.cell
def _(ids, source):
    from trajlake.runtime.branches.divergence import diverge

    other = source.record(ids[min(1, len(ids) - 1)])
    answer = diverge(source.record(ids[0]), other)
    print(answer.text())
    return (answer,)


@app.cell
def _(mo):
    mo.md("""
    # 5. Would a change have helped?

    That takes a model: `branch(journal, id, at_turn, Change(...), agent=..., model=..., n=20, tools=Stubs(...))` goes
    on from the turn with one thing changed, and counts. One branch shows that a change *can* matter; the interval over
    many says how much.
    """)


if __name__ == "__main__":
    app.run()
