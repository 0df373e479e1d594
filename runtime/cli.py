"""The command `trajlake`: a table of verbs, of which only the one invoked is imported.

How a verb is registered. Each package keeps `verbs.py` with one dictionary, found through the entry-point group
`trajlake.commands`; a new line in it needs no new installation:

    VERBS = {
        "ship": ("trajlake.ingest.commands.ship:ship", "copy sealed segments to the landing"),
        "journal": ("", "look into a root's segments"),                      # a group: no target
        "journal ls": ("trajlake.runtime.commands.journal:ls", "list writers and segments"),
    }

A target is `module:attribute`: a plain function with typer annotations (its docstring is the help text), or a
`typer.Typer` for a group that lives in one file. A verb returns None or an exit code, prints data on stdout and
everything else on stderr, and raises `UserError` (`cli_errors.py`) for what the user can mend. One verb has one
owner: a name registered twice is refused at start.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from trajlake.runtime.cli_errors import (
    EXIT_COULD_NOT_RUN,
    EXIT_DONE,
    EXIT_REFUSED,
    UserError,
    line_and_code,
    one_line,
)
from trajlake.runtime.std_streams import complain, make_ready

COMMANDS_GROUP: Final = "trajlake.commands"
DEBUG_VARIABLE: Final = "TRAJLAKE_DEBUG"
HELP: Final = """One journal for agent trajectories: the agent's crash safety and the team's data lake.

Exit codes: 0 done, 1 findings or differences, 2 bad input or refused, 3 could not run. Settings come from
trajlake.toml, the environment and flags, the later one wins ('trajlake config' shows them).
"""

# typer carries its own click, whose usage error has no public name; one public class leads to it.
UsageError: Final[type[BaseException]] = typer.BadParameter.__mro__[1]


class Verb(NamedTuple):
    """One line of a package's table: where the verb stands (empty for a group), what it does, who owns it."""

    target: str
    summary: str
    owner: str


def read_verbs(points: Iterable[EntryPoint]) -> dict[str, Verb]:
    """Return every registered verb by name; raise `UserError` (exit 3) where two packages claim one name.

    Only the packages' `verbs.py` are imported, which hold data.
    """
    verbs: dict[str, Verb] = {}
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        table: Mapping[str, tuple[str, str]] = point.load()
        for name, (target, summary) in table.items():
            if name in verbs:
                raise UserError(
                    f"verb '{name}' is registered twice, by {verbs[name].owner} and {point.value}; uninstall one",
                    exit_code=EXIT_COULD_NOT_RUN,
                )
            verbs[name] = Verb(target, summary, point.value)
    return verbs


def installed_verbs() -> dict[str, Verb]:
    """Return the verbs of every installed package."""
    return read_verbs(unique(entry_points(group=COMMANDS_GROUP)))


def unique(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Drop repeats of one entry point: an editable install beside stale metadata lists the same one twice."""
    return list({(point.name, point.value): point for point in points}.values())


class LazyGroup(TyperGroup):
    """A group that lists its verbs from the table and imports a verb only when it is invoked.

    `verbs` is keyed by full name ("journal ls"); `prefix` is this group's own name with a blank, or empty at the root.
    """

    def __init__(self, verbs: Mapping[str, Verb], prefix: str = "", **attributes: Any) -> None:
        self.verbs = verbs
        self.prefix = prefix
        names = sorted({name[len(prefix) :].partition(" ")[0] for name in verbs if name.startswith(prefix)})
        super().__init__(commands=[self.stand_in(name) for name in names], rich_markup_mode=None, **attributes)

    def stand_in(self, name: str) -> TyperCommand:
        """Return a command that is good for listing only; `resolve_command` puts the real one in its place."""
        verb = self.verbs.get(self.prefix + name)
        return TyperCommand(name, help=verb.summary if verb else "", rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, None if stand_in is None else self.load(str(name)), rest

    def load(self, name: str) -> Any:
        """Import the verb and return its command; a missing extra surfaces here as `ModuleNotFoundError`."""
        verb = self.verbs.get(self.prefix + name)
        if verb is None or not verb.target:
            summary = verb.summary if verb else None
            return LazyGroup(self.verbs, f"{self.prefix}{name} ", name=name, help=summary, no_args_is_help=True)
        module_name, _, attribute = verb.target.partition(":")
        return as_command(name, getattr(importlib.import_module(module_name), attribute))


def as_command(name: str, target: Any) -> Any:
    """Turn a plain function or a `typer.Typer` into the command that the verb `name` runs."""
    if isinstance(target, typer.Typer):
        target._add_completion = False
        command: Any = typer.main.get_group(target)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name)(target)
        command = typer.main.get_command(app)
    command.name = name
    command.rich_markup_mode = None
    return command


def print_version(asked: bool) -> None:
    if asked:
        print(f"trajlake {version('trajlake')}")
        raise typer.Exit(EXIT_DONE)


def root_options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold the options that stand before the verb."""


def root_command(verbs: Mapping[str, Verb]) -> LazyGroup:
    """Build the command `trajlake` over a table of verbs."""
    return LazyGroup(
        verbs,
        name="trajlake",
        help=HELP,
        params=as_command("trajlake", root_options).params,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code (0 done, 1 findings, 2 refused, 3 could not run).

    A failure prints one line on stderr. Ctrl-C and a reader that went away (`trajlake tail | head`) end quietly with
    the status a shell expects of the signal.
    """
    make_ready()
    given = list(sys.argv[1:] if arguments is None else arguments)
    verb = "trajlake"
    try:
        verbs = installed_verbs()
        verb = verb_named(given, verbs)
        code = invoke(verbs, given)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        complain("trajlake: interrupted")
        return 128 + signal.SIGINT
    except BrokenPipeError as error:
        return reader_gone() or report(error, verb)
    except (UnicodeEncodeError, TypeError) as error:
        return report(no_text(given) or error, verb)
    except Exception as error:  # noqa: BLE001 - the last line of defence: no traceback reaches a user
        return report(error, verb)


def verb_named(arguments: Sequence[str], verbs: Mapping[str, Verb]) -> str:
    """Return the name of the verb that the arguments call, for the messages about it."""
    words = [word for word in arguments if not word.startswith("-")]
    two_words = " ".join(words[:2])
    return two_words if two_words in verbs else (words[0] if words else "trajlake")


def invoke(verbs: Mapping[str, Verb], arguments: list[str]) -> int:
    """Run the verb; usage errors become one line that names where help is."""
    try:
        with root_command(verbs).make_context("trajlake", arguments) as context:
            result = context.command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except UsageError as error:
        return usage_error(error)
    return result if isinstance(result, int) else EXIT_DONE


def usage_error(error: Any) -> int:
    """Say what is wrong with the words of the command line; a bare group name shows the group's help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help())
        return EXIT_REFUSED
    path = error.ctx.command_path if error.ctx is not None else "trajlake"
    complain(f"trajlake: {one_line(with_value(error)).rstrip('.')}; see '{path} --help'")
    return EXIT_REFUSED


def with_value(error: Any) -> str:
    """Return a usage error's text; the value that did not fit, which typer leaves out, stands in it."""
    text = str(error.format_message())
    if not hasattr(error.__cause__, "errors"):
        return text
    value = str(error.__cause__.errors()[0].get("input"))[:80]
    return text.replace("Invalid value for", f"Invalid value {value!r} for", 1)


def report(error: Exception, verb: str) -> int:
    """Print the one line for an exception (with TRAJLAKE_DEBUG=1 its trace first) and return the exit code."""
    if os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        traceback.print_exception(error)
    line, code = line_and_code(error, verb)
    complain(f"trajlake: {line}")
    return code


def no_text(arguments: Sequence[str]) -> UserError | None:
    """Return the line about an argument that is no UTF-8, as a file name may be: not every verb can take it."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return UserError(f"{ascii(argument)}: is no text in UTF-8, which this needs; use another name")
    return None


def reader_gone() -> int:
    """Return 141 (128 + SIGPIPE) if nobody reads stdout any more, else 0: then some other pipe broke."""
    try:
        stdout = sys.stdout.fileno()
        poll = select.poll()
        poll.register(stdout, 0)  # errors and hang-ups are reported unasked
    except (AttributeError, OSError):  # no poll on Windows, no descriptor under a test's capture
        return 0
    if not poll.poll(0):
        return 0
    # The interpreter flushes stdout once more at exit; give it a place to go.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return 128 + signal.SIGPIPE
