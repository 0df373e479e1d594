"""What the command line does with failures: one line that says what, where and what next, and an exit code.

    0  done
    1  findings or differences: the work was done, and its answer is not "all well"
    2  bad input, or refused: the user can mend it
    3  could not run: a missing extra, a full disk, a service that does not answer, a bug

`TRAJLAKE_DEBUG=1` shows the trace behind the line.
"""

from __future__ import annotations

from typing import Final

from trajlake.schemas.errors import SchemaError

EXIT_DONE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_REFUSED: Final = 2
EXIT_COULD_NOT_RUN: Final = 3
EXIT_INTERRUPTED: Final = 130

EXTRA_BY_MODULE: Final = {
    "apache_beam": "lake",
    "pyarrow": "lake",
    "polars": "lake",
    "duckdb": "lake",
    "deltalake": "lake",
    "fsspec": "lake",
    "zstandard": "lake",
    "cryptography": "audit",
    "s3fs": "s3",
    "aiobotocore": "s3",
    "botocore": "s3",
    "psycopg": "postgres",
    "marimo": "notebooks",
}
"""Top-level third-party module -> the extra of trajlake that brings it."""


class UserError(Exception):
    """Raise this for anything the user can mend; its text is the whole line they see.

    The text names what is wrong, where (file and place), the value, and what to do next. `exit_code` is 2 unless the
    caller says the work could not run (3).
    """

    def __init__(self, message: str, *, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def missing_extra(error: ModuleNotFoundError, verb: str) -> UserError | None:
    """Return the line that names the extra behind a failed import, or None for a module no extra brings."""
    extra = EXTRA_BY_MODULE.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return UserError(
        f"'{verb}' needs the extra '{extra}': pip install 'trajlake[{extra}]'", exit_code=EXIT_COULD_NOT_RUN
    )


def line_and_code(error: Exception, verb: str) -> tuple[str, int]:
    """Return the one line and the exit code for any exception that a verb let through.

    Errors of the project carry a line fit for a user: `UserError`, `SchemaError`, and every class with an integer
    `exit_code` attribute (the runtime's own errors). The rest is the system's refusal (`OSError`) or a bug.
    """
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error, verb) or error
    own_code = getattr(error, "exit_code", None)
    if isinstance(own_code, int) and not isinstance(error, SystemExit):
        return one_line(str(error)), own_code
    if isinstance(error, SchemaError):
        return one_line(str(error)), EXIT_REFUSED
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return one_line(f"{where}{error.strerror}"), os_exit_code(error)
    if isinstance(error, OSError) and str(error):
        return one_line(str(error)), EXIT_COULD_NOT_RUN
    if is_about_a_data_file(error):
        return f"{first_line(error)}; 'trajlake verify' tells which file of the lake", EXIT_COULD_NOT_RUN
    what = one_line(f"{type(error).__name__}: {error}")
    return f"'{verb}' failed inside: {what}; TRAJLAKE_DEBUG=1 shows the trace, please report it", EXIT_COULD_NOT_RUN


def is_about_a_data_file(error: Exception) -> bool:
    """Whether a library that reads tables says that it cannot read a Parquet file."""
    library = type(error).__module__.partition(".")[0]
    return library in ("_duckdb", "duckdb", "polars", "pyarrow", "deltalake") and "parquet" in str(error).lower()


def first_line(error: Exception) -> str:
    """Return what an error says before it draws the statement."""
    return one_line(str(error).partition("\nLINE ")[0])


def os_exit_code(error: OSError) -> int:
    """A path that is not there or of the wrong kind is bad input; a full or failing disk is not the user's doing."""
    mendable = (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError)
    return EXIT_REFUSED if isinstance(error, mendable) else EXIT_COULD_NOT_RUN


def one_line(text: str) -> str:
    """Fold a text onto one line; control characters, which a hostile id may carry, are shown escaped."""
    folded = " ".join(text.split())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in folded)
