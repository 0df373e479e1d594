"""Crash an agent in the middle of its work, look at what is left, and let it go on.

marimo edit notebooks/02_crash_and_resume.py
"""

import marimo

app = marimo.App(width="medium")


@app.cell
def _():
    import os
    import tempfile
    from pathlib import Path

    import marimo as mo

    from trajlake.runtime import Journal
    from trajlake.runtime.handover import sheet
    from trajlake.runtime.models import scripted
    from trajlake.runtime.root_view import RootView, status_row

    folder = Path(tempfile.mkdtemp(prefix="trajlake-crash-"))
    (folder / "work").mkdir()
    return Journal, Path, RootView, folder, mo, os, scripted, sheet, status_row


@app.cell
def _(mo):
    mo.md("""
    # 1. An agent with files, an effect outside, and a promise

    `edit` changes only the workspace (`local`); `book` reaches outside (`external`). The process dies in turn 1, after
    the booking was sent and before anything came back: the worst moment there is.
    """)


@app.cell
def _(Journal, folder, os, scripted):
    hotel = folder / "hotel.txt"  # the outside world: what was really booked

    def opened(dies):
        journal = Journal.open(folder / "root")

        @journal.tool(effect="local")
        def edit(name: str, text: str) -> str:
            (folder / "work" / name).write_text(text)
            return f"{len(text)} characters"

        @journal.tool(effect="external", timeout_s=5)
        def book(room: int) -> str:
            with hotel.open("a") as book:
                book.write(f"{room}\n")
            if dies:
                os._exit(9)
            return f"room {room} is yours"

        return journal

    def agent(t):
        t.context.user("book a room and note it")
        for turn in t.turns():
            if turn.number == 0:
                t.obligations.open("note", "leave a note for the guest", owed_to="guest")
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.obligations.discharge("note", how="note.txt")
                t.finish(reply.text)

    model = scripted([[("edit", {"name": "note.txt", "text": "arriving"})], [("book", {"room": 7})], "all set"])
    return agent, hotel, model, opened


@app.cell
def _(agent, folder, hotel, model, opened, os):
    pid = os.fork()
    if pid == 0:
        opened(dies=True).run(agent, "trip", task={"for": "ann"}, model=model, workspace=str(folder / "work"))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sent = hotel.read_text().split()
    return code, sent


@app.cell
def _(RootView, code, folder, mo, opened, sent, sheet, status_row):
    journal = opened(dies=False)
    found = RootView(journal.root).trajectory("default", "trip")
    row = status_row(found, journal.root.env.now_us())
    left = sheet(found.state, journal.root.env.now_us())
    assert len(sent) == 1
    mo.md(f"""
    # 2. What is left

    The process ended with code {code}; the status is `{row.status}`, the booking was sent {len(sent)} time. In doubt:
    `{[one["tool"] for one in left["in_doubt"]]}`, still owed: `{[one["text"] for one in left["obligations"]]}`.
    All of it is in the log; the files are in `{folder / "work"}`, and in the record.
    """)
    return journal, left, row


@app.cell
def _(Path, agent, folder, journal, model):
    note = Path(folder / "work" / "note.txt")
    note.unlink()  # the host was lost with its files
    parked = journal.run(agent, "trip", model=model, workspace=str(folder / "work"))
    restored = note.read_text()
    return parked, restored


@app.cell
def _(mo, parked, restored):
    assert parked.status == "parked"
    assert restored == "arriving"
    mo.md(f"""
    # 3. It does not guess

    The file is back (`{restored}`), from the record; no tool was run. The booking is not sent again: nobody can know
    whether it happened, so the trajectory waits without a worker and asks one question:

    > {parked.waiting_for[0].question}
    """)


@app.cell
def _(agent, folder, hotel, journal, model, parked):
    journal.settle("trip", parked.waiting_for[0].action_id, executed=True, because="the hotel says so", output="room 7")
    outcome = journal.run(agent, "trip", model=model, workspace=str(folder / "work"))
    journal.close()
    times = len(hotel.read_text().split())
    return outcome, times


@app.cell
def _(mo, outcome, times):
    assert (outcome.status, outcome.result, times) == ("completed", "all set", 1)
    mo.md(f"""
    # 4. It goes on

    `{outcome.status}`: {outcome.result}. The booking was made {times} time. `trajlake show trip` has the seam.
    """)


if __name__ == "__main__":
    app.run()
