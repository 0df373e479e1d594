"""The verbs of `pipelines` on the command line, one module each. Typer and printing live here only."""
