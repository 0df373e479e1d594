"""`trajlake crashtest`: a user's agent in child processes, killed at every boundary, resumed, and judged.

| file | what |
|---|---|
| `campaign.py` | which boundaries, in which processes; from lives to a report |
| `processes.py` | forks children, several at a time, and waits for them |
| `life.py` | the child: the agent with its parts watched, or a replay of what it left |
| `boundaries.py` | counts the boundaries of one life and dies at one |
| `ledger.py` | what the tools saw: a file of its own, synced line by line |
| `witness.py` | what left the process during a body, or past any body |
| `person.py` | answers approvals, jobs and doubts from the ledger |
| `judge.py` | from ledger and record to findings |
| `report.py` | findings for people and programs |
"""
