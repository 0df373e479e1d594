"""Audit a lake: run the controls, read a finding down to its event, and see what the verdicts rest on.

TRAJLAKE_LAKE=trajlake-demo/lake marimo edit notebooks/05_audit_a_lake.py
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import marimo as mo

    from trajlake.pipelines.audit.audit import Request, run_audit
    from trajlake.pipelines.audit.audit_bundle import findings_frame
    from trajlake.pipelines.audit.audit_controls import controls
    from trajlake.runtime.settings import load

    lake = load().lake
    report = run_audit(Request(lake=lake, record=False))
    return controls, findings_frame, lake, mo, report


@app.cell
def _(lake, mo, report):
    mo.md(f"""
    # 1. Can the result be trusted?

    Before anything is said about `{lake}`, the same SQL ran over a small lake whose violations are known: all
    **{report.positive.expected}** were found there and no other. A control that finds nothing in *your* lake is not
    simply broken.

    Who vouches for the log itself: *{report.attestation.text}*.
    """)


@app.cell
def _(mo, report):
    verdicts = [
        {
            "control": result.control.id,
            "title": result.control.title,
            "verdict": result.verdict,
            "found": result.found,
            "trajectories": result.trajectories,
            "note": result.note,
        }
        for result in report.results
    ]
    mo.ui.table(verdicts, selection=None)
    return (verdicts,)


@app.cell
def _(mo):
    mo.md("""
    # 2. What was found

    Every row names the exact event. *Not applicable* is neither pass nor finding: an import cannot show who
    authorized an effect, and a scan for secrets has to have run before its controls can say anything.
    """)


@app.cell
def _(findings_frame, report):
    found = findings_frame(report.findings)
    found
    return (found,)


@app.cell
def _(controls, mo):
    mo.md(f"""
    # 3. What a control is

    One statement that selects violations. This one asks for an allow before each effect:

    ```sql
    {controls()["Q01"].sql}
    ```

    `trajlake audit --out DIR` writes findings, statements and their hashes into one folder; `trajlake evidence ID`
    gathers everything about one trajectory; `trajlake anchor` signs what stands in the lake, to be kept elsewhere.
    """)


if __name__ == "__main__":
    app.run()
