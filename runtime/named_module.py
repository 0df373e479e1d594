"""`module:attribute` as a user writes it: an agent, stand-ins, a counter. Importing it may raise anything."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from .cli_errors import UserError


def imported(name: str, what: str) -> tuple[ModuleType, Any]:
    """Return the module, found from the current folder too, and the attribute.

    Raises `UserError`, in one line that begins with `what`: no such name, or whatever importing it raised.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"{what} {name!r}: expected module:name")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{what} {name!r}: {error}; run where the module can be imported") from error
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
        raise UserError(f"{what} {name!r}: importing {module_name} raised {raised}; mend it") from error
    try:
        return module, getattr(module, attribute)
    except AttributeError as error:
        raise UserError(f"{what} {name!r}: {error}; check the name") from error
