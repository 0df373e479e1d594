"""A tour of one trajectory: what was recorded, in which order, and what it cost. Run it over the demo's lake.

trajlake demo
TRAJLAKE_LAKE=trajlake-demo/lake marimo edit notebooks/01_tour_of_a_trajectory.py
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    from trajlake.pipelines import connect
    from trajlake.runtime.settings import load

    lake = load().lake
    connection = connect(lake)
    return connection, lake, mo


@app.cell
def _(lake, mo):
    mo.md(f"""
    # 1. Which trajectories are there?

    A lake is a set of Delta tables that change together: this page reads one snapshot of `{lake}`. One row per
    trajectory; *resumes* counts how often a new worker had to take over.
    """)


@app.cell
def _(connection):
    trajectories = connection.sql("""
        select trajectory_id, kind, status, turns, model_calls, tool_calls, in_doubt, resumes, output_tokens
        from trajectories
        where kind <> 'judgement'
        order by resumes desc, turns desc, trajectory_id
    """).pl()
    assert len(trajectories), "this lake holds no trajectory yet"
    chosen = trajectories["trajectory_id"][0]
    trajectories
    return (chosen,)


@app.cell
def _(chosen, mo):
    mo.md(f"""
    # 2. Turn by turn: `{chosen}`

    A turn is one round of the agent's loop. The prologue, where the context gets its first messages, is turn -1.
    """)


@app.cell
def _(chosen, connection):
    connection.sql(
        "select turn, events, model_calls, tool_calls, tool_errors, input_tokens, output_tokens, "
        "epoch_ms(ended_at) - epoch_ms(started_at) as took_ms from turns where trajectory_id = ? order by turn",
        params=[chosen],
    ).pl()


@app.cell
def _(mo):
    mo.md("""
    # 3. The journal's own story

    Events in the order that counts. A `ToolIntent` is on disk before its effect leaves the host; where a result is
    missing, somebody had to settle it: `ToolSettled` says how.
    """)


@app.cell
def _(chosen, connection):
    connection.sql(
        "select sequence_number, turn, event_type, fencing_token as token, payload ->> 'tool' as tool, "
        "payload ->> 'action_id' as action, coalesce(payload ->> 'status', payload ->> 'how') as outcome "
        "from events where trajectory_id = ? order by sequence_number",
        params=[chosen],
    ).pl()


@app.cell
def _(mo):
    mo.md("""
    # 4. Every action, by the four events that may exist of it

    Proposal, authorization, intent and result, each by its sequence number; the stage follows from which are there.
    """)


@app.cell
def _(chosen, connection):
    connection.sql(
        "select action_id, tool, effect, proposed_seq, authorized_seq, intent_seq, result_seq, stage, attempts, "
        "settled_how from tool_calls where trajectory_id = ? order by proposed_seq, action_id",
        params=[chosen],
    ).pl()


@app.cell
def _(mo):
    mo.md("""
    # 5. What the model was shown

    The items of the context in order, as they were delivered.
    """)


@app.cell
def _(chosen, connection):
    connection.sql(
        "select item_no, turn, role, left(coalesce(text, wire), 120) as begins from messages "
        "where trajectory_id = ? order by item_no",
        params=[chosen],
    ).pl()


@app.cell
def _(mo):
    mo.md("""
    # 6. What it cost, by the model that was served
    """)


@app.cell
def _(connection):
    connection.sql(
        "select day, served_model, model_calls, input_tokens, output_tokens, cost_usd "
        "from usage_by_model_day order by all"
    ).pl()


if __name__ == "__main__":
    app.run()
