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
