"""Classes that golden vectors and the value matrix write by name. Their names and fields are bytes on disk."""

from __future__ import annotations

import dataclasses
import enum

import msgspec


@dataclasses.dataclass(frozen=True)
class Order:
    order_id: str
    cents: int
    notes: tuple[str, ...] = ()


class Colour(enum.Enum):
    RED = 1
    GREEN = "g"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float


class Declined(Exception):
    """Takes other arguments than it keeps."""

    def __init__(self, order_id: str, code: int) -> None:
        super().__init__(f"order {order_id} declined with {code}")
        self.order_id = order_id


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Located(Exception):
    """Its message comes from an attribute that `args` does not hold."""

    def __init__(self, place: str, line: int) -> None:
        super().__init__(place)
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}"
