"""Which classes the value codec writes by name, and how a name becomes a class again.

A name is `module:Qualified.Name`. Reading imports nothing and runs no user code but a struct's or an enum's
own look-up: a name is found only if `register` named it, or if its module is already imported and holds,
under that name, a class of the kind that the tag says. Anything else is refused with path and type.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_class_of_name: Final[dict[str, type]] = {}
_name_of_class: Final[dict[type, str]] = {}


def register(cls: type, name: str | None = None) -> type:
    """Let the codec write `cls` under `name` (default `module:Qualified.Name`) and read it back; return `cls`.

    Needed for classes made inside functions, for those of a script (`__main__`), and to keep the name of a
    class that moved: register it under its old name. Usable as a decorator. Registering another class under
    a name in use replaces the earlier one, as a reloaded module does.
    """
    chosen = name or _plain_name(cls)
    _class_of_name[chosen] = cls
    _name_of_class[cls] = chosen
    return cls


def name_of(cls: type) -> str | None:
    """Return the name under which `cls` will be found again, or None if it would not be."""
    known = _name_of_class.get(cls)
    if known is not None:
        return known
    name = _plain_name(cls)
    return name if find(name) is cls else None


def find(name: str) -> type | None:
    """Return the class called `name` if it is registered or already imported, else None. Imports nothing."""
    known = _class_of_name.get(name)
    if known is not None:
        return known
    module_name, _, path = name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in path.split("."):
        if found is None:
            return None
        # vars(), not getattr(): a module's or class's dynamic attributes would run code.
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


def forget(cls: type) -> None:
    """Undo every `register` of `cls`; one that was never registered is left alone."""
    _name_of_class.pop(cls, None)
    for name in [name for name, known in _class_of_name.items() if known is cls]:
        del _class_of_name[name]


def _plain_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"
