"""What verbs on a root share: opening it, options, tables, JSON."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_REFUSED, UserError, one_line
from trajlake.runtime.settings import Settings, load

if TYPE_CHECKING:
    from trajlake.runtime.mailbox.mail import MailItem
    from trajlake.runtime.mailbox.posting import Postman
    from trajlake.runtime.root import Root
    from trajlake.runtime.root_view import RootView

JOURNAL = Annotated[str | None, typer.Option("--journal", metavar="ROOT", help="The root; default: see config.")]
TENANT = Annotated[str | None, typer.Option("--tenant", help="Whose trajectory; default: see config.")]
JSON = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
ROOT = Annotated[str | None, typer.Argument(metavar="[ROOT]", help="The root; or --journal.")]
ACTOR = Annotated[str | None, typer.Option("--as", metavar="NAME", help="In whose name; default: the OS user.")]


def settings_of(journal: str | None, tenant: str | None = None, root: str | None = None) -> Settings:
    """Return the settings; the root may stand as an argument or a flag, not as both."""
    if root is not None and journal is not None and root != journal:
        raise UserError(f"two roots are named, {root!r} and --journal {journal!r}: give one")
    return load(journal=journal if root is None else root, tenant=tenant)


def open_root(path: str) -> Root:
    """Open an existing root; raise `UserError` if there is none."""
    from trajlake.runtime.root import Root
    from trajlake.runtime.wal.journal_errors import RootError

    try:
        return Root.open(path, create=False)
    except RootError as error:
        raise UserError(str(error)) from None


def damaged(error: Exception | str, root: Root, *, exit_code: int = EXIT_REFUSED) -> UserError:
    """Return the line for damage in `root`, with the one piece of advice: the command that looks at all of it."""
    from trajlake.runtime.wal.journal_errors import without_advice

    text = f"{without_advice(str(error))}; run 'trajlake journal verify {root.path}'"
    return UserError(text, exit_code=exit_code)


def open_view(journal: str | None) -> RootView:
    """Open an existing root for looking at."""
    from trajlake.runtime.root_view import RootView

    return RootView(open_root(settings_of(journal).journal))


def postman(root: Root, tenant: str, actor: str | None, check: Callable[[MailItem], None]) -> Postman:
    """Return a postman in the name of `actor`, or of the user of the operating system; `check` sees each item first."""
    from trajlake.runtime.mailbox.posting import Postman
    from trajlake.runtime.stores import mail_store

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    known_by = "os user" if actor is None else f"named on the command line by os user {user}"
    return Postman(mail_store(root), tenant, actor=actor or user, known_by=known_by, env=root.env, check=check)


def print_json(tree: Any) -> None:
    """Print one JSON document, readable by people too."""
    print(msgspec.json.format(msgspec.json.encode(tree), indent=2).decode())


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print rows in columns as wide as they need; columns without any text are left out."""
    if not rows:
        print(empty, file=sys.stderr)
        return
    shown = [[one_line(cell) for cell in row] for row in rows]
    kept = [place for place in range(len(headings)) if any(row[place] for row in shown)]
    widths = [max(len(headings[place]), *(len(row[place]) for row in shown)) for place in kept]
    for row in [list(headings), *shown]:
        print("  ".join(row[place].ljust(width) for place, width in zip(kept, widths, strict=True)).rstrip())


def value_of(text: str) -> Any:
    """Return the value of a JSON text, or the text itself where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
