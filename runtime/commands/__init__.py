"""The verbs of `runtime` on the command line, one module each. Typer and printing live here only."""
