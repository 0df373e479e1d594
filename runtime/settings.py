"""The settings that verbs share: `trajlake.toml`, then environment, then flags; the later one wins.

`trajlake.toml` stands in the working folder, or where `TRAJLAKE_CONFIG` says. A relative path in it is relative to the
file, so the same file means the same places from every folder. A name that no setting has is refused: a misspelt
`tennant` must not silently mean the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import check_tenant

FILE_NAME: Final = "trajlake.toml"
FILE_VARIABLE: Final = "TRAJLAKE_CONFIG"


class Setting(NamedTuple):
    """One setting: its name in the file, the variable that overrides it, what it means."""

    name: str
    default: str
    meaning: str
    is_place: bool

    @property
    def variable(self) -> str:
        return f"TRAJLAKE_{self.name.upper()}"


SETTINGS: Final = (
    Setting("journal", "journal", "the root: the folder that this host's agents write their journals to", True),
    Setting("landing", "landing", "where sealed segments are shipped to: a folder or a URL", True),
    Setting("lake", "lake", "the tables, the content store and the snapshots: a folder or a URL", True),
    Setting("tenant", "default", "whose trajectories a verb means", False),
)


class Settings(NamedTuple):
    """The settings in force. `origins` names, for each, the flag, variable or file it came from, or `default`."""

    journal: str
    landing: str
    lake: str
    tenant: str
    origins: Mapping[str, str]


def load(
    *,
    journal: str | None = None,
    landing: str | None = None,
    lake: str | None = None,
    tenant: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: str = ".",
) -> Settings:
    """Return the settings in force; an argument that is not None is a flag and wins.

    Reads at most one file. Raises `UserError` (exit 2) for a file that is not TOML or holds an unknown or empty
    setting, and for a tenant outside its grammar. An empty variable counts as not set.
    """
    variables = os.environ if environ is None else environ
    flags = {"journal": journal, "landing": landing, "lake": lake, "tenant": tenant}
    path, from_file = read_file(variables, folder)
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for setting in SETTINGS:
        name = setting.name
        values[name], origins[name] = setting.default, "default"
        if name in from_file:
            values[name], origins[name] = placed(setting, from_file[name], path), path
        if variables.get(setting.variable):
            values[name], origins[name] = variables[setting.variable], setting.variable
        flag = flags[name]
        if flag is not None:
            values[name], origins[name] = flag, f"--{name}"
        if not values[name].strip():
            raise UserError(f"{origins[name]}: {name} is empty; name {setting.meaning}")
    checked_tenant(values["tenant"], origins["tenant"])
    return Settings(values["journal"], values["landing"], values["lake"], values["tenant"], origins)


def read_file(variables: Mapping[str, str], folder: str) -> tuple[str, dict[str, str]]:
    """Return the path of the settings file and what it sets; nothing when there is none."""
    named = variables.get(FILE_VARIABLE)
    path = named or os.path.join(folder, FILE_NAME)
    try:
        with open(path, "rb") as file:
            parsed = tomllib.load(file)
    except FileNotFoundError:
        if named:
            raise UserError(f"{path}: no such file; {FILE_VARIABLE} names it") from None
        return FILE_NAME, {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    path = os.path.normpath(path)
    known = [setting.name for setting in SETTINGS]
    for name, value in parsed.items():
        if name not in known:
            raise UserError(f"{path}: unknown setting '{name}'; known are {', '.join(known)}")
        if not isinstance(value, str):
            raise UserError(f"{path}: {name} must be a text in quotes")
    return path, parsed


def placed(setting: Setting, value: str, path: str) -> str:
    """Resolve a relative folder against the settings file; URLs and absolute paths stay as they are."""
    if not setting.is_place or "://" in value or not value.strip():
        return value
    return os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(value)))


def checked_tenant(tenant: str, origin: str) -> None:
    try:
        check_tenant(tenant)
    except InvalidId as error:
        raise UserError(f"{error} (from {origin})") from None


def template() -> str:
    """Return the text of a `trajlake.toml` in which every setting stands commented out at its default."""
    lines = [
        "# Settings of trajlake. The environment overrides this file, flags override both; 'trajlake config' shows",
        "# what is in force. Relative paths are relative to this file. Credentials do not belong here.",
    ]
    for setting in SETTINGS:
        lines += ["", f"# {setting.meaning} ({setting.variable})", f'# {setting.name} = "{setting.default}"']
    return "\n".join(lines) + "\n"
