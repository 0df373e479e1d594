"""The verbs of `ingest` on the command line, one module each. Typer and printing live here only."""
