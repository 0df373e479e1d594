"""What `trajlake plan --fleet` prints: a sized fleet, its rates with their sources, and what ends first."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.root import print_json
from trajlake.runtime.fleet import Fleet, Line, Workload, assumed, rates_of, size
from trajlake.runtime.fleet_rates import RATES

ASKED: Final = {field.name: field.type for field in dataclasses.fields(Workload)}


def size_fleet(numbers: Sequence[str], rates: Path | None, as_json: bool) -> None:
    """Size a fleet and print it. Raises `UserError` for a number or a name that is none."""
    asked = [_number(text) for text in numbers]
    own = _read(rates) if rates is not None else {}
    for name, value in asked:
        if name not in ASKED and name not in RATES:
            raise UserError(f"plan: --set {name}: no such number; there are {', '.join([*ASKED, *RATES])}")
        if value < 0 or (value == 0 and name in (*RATES, "trajectories", "turns", "tenants", "models")):
            raise UserError(f"plan: --set {name}={value:g}: must be above 0")
    own |= {name: value for name, value in asked if name in RATES}
    work = Workload(**{name: _whole(name, value) for name, value in asked if name in ASKED})
    fleet = size(work, rates_of(own))
    if as_json:
        print_json(_tree(work, fleet, own))
    else:
        print(page(work, fleet, own))


def page(work: Workload, fleet: Fleet, own: Mapping[str, float] | None = None) -> str:
    """Return the fleet as text; `pipelines/SCALE.md` holds the same. `own`: rates that were given."""
    names, rest = assumed(work, own)
    lines = [f"{work.trajectories:,} trajectories a day of {work.turns:,} turns"]
    for section, found in fleet.sections.items():
        lines += ["", section, *(_shown(line, "*" * ((section, line.name) in rest)) for line in found)]
    lines += ["", "what ends first"]
    for limit in fleet.limits:
        of = f"{_figure(limit.load)} of {_figure(limit.limit)} {limit.unit}"
        mark = "*" * (("limits", limit.name) in rest)
        lines.append(f"  {limit.name:<25} {limit.used:>7.1%}{mark:<2}{of:<28} {limit.then}".rstrip())
    if rest:
        lines += ["", f"* rests on rates that are assumed, not measured ({', '.join(names)}): give yours by --set"]
    return "\n".join(lines)


def _shown(line: Line, mark: str) -> str:
    return f"  {line.name:<25} {_figure(line.value):>12}{mark:<2}{line.unit:<8} {line.how}".rstrip()


def _figure(value: float) -> str:
    """Three significant digits, or the whole number where it has more."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _number(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if equals:
            return name.strip(), float(value.replace("_", ""))
    except ValueError:
        pass
    raise UserError(f"plan: --set {text!r}: write NAME=NUMBER")


def _whole(name: str, value: float) -> Any:
    if ASKED[name] != "int":
        return value
    if value != int(value):
        raise UserError(f"plan: --set {name}={value:g}: must be a whole number")
    return int(value)


def _read(file: Path) -> dict[str, float]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not TOML: {error}") from None
    for name, value in found.items():
        if name not in RATES:
            raise UserError(f"{file}: {name}: no such rate; there are {', '.join(RATES)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise UserError(f"{file}: {name} = {value}: must be a number above 0")
    return {name: float(value) for name, value in found.items()}


def _tree(work: Workload, fleet: Fleet, own: dict[str, float]) -> dict[str, Any]:
    _, rest = assumed(work, own)
    return {
        "workload": dataclasses.asdict(work),
        "sections": {
            section: [dataclasses.asdict(line) | {"assumed": (section, line.name) in rest} for line in found]
            for section, found in fleet.sections.items()
        },
        "limits": [
            dataclasses.asdict(limit) | {"used": limit.used, "assumed": ("limits", limit.name) in rest}
            for limit in fleet.limits
        ],
        "rates": {
            name: {
                "value": own.get(name, rate.value),
                "unit": rate.unit,
                "source": "given" if name in own else rate.source,
            }
            for name, rate in RATES.items()
        },
    }
