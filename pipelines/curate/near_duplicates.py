"""Near duplicates: MinHash proposes (rensa, an optional extra), an exact comparison decides.

Five-word runs, 112 values in 14 bands of 8 with seed 1: two rows alike by 0.8 meet in a band with probability 0.92.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

import polars as pl

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

SIGNATURE_SIZE: Final = 112
BANDS: Final = 14
SEED: Final = 1
WORDS: Final = 5


class NearDuplicates(Protocol):
    """Proposes rows that may be alike. Another library needs only signatures of equal length."""

    name: str
    version: str

    def signature(self, runs: Sequence[str]) -> list[int]: ...


class Rensa:
    """MinHash in Rust. Its values are part of a set's identity: seed and version stand in the manifest."""

    name = "rensa"

    def __init__(self) -> None:
        try:
            import rensa
        except ImportError:
            raise UserError(
                "duplicates.near: rensa is not installed; install trajlake[near-duplicates] or set near = false",
                exit_code=EXIT_COULD_NOT_RUN,
            ) from None
        from importlib.metadata import version

        self._made = rensa.RMinHash
        self.version = version("rensa")

    def signature(self, runs: Sequence[str]) -> list[int]:
        made = self._made(num_perm=SIGNATURE_SIZE, seed=SEED)
        made.update(list(runs))
        return list(made.digest())


def runs_of(text: str) -> set[str]:
    """Return the five-word runs of a text; a shorter text is one run."""
    words = text.split()
    if len(words) <= WORDS:
        return {" ".join(words)}
    return {" ".join(words[place : place + WORDS]) for place in range(len(words) - WORDS + 1)}


def signatures_of(texts: Sequence[str], library: NearDuplicates | None = None) -> Iterator[list[int]]:
    """Yield the signature of each text."""
    library = library or Rensa()
    for text in texts:
        yield library.signature(sorted(runs_of(text)))


def alike(
    signatures: pl.DataFrame, threshold: float, texts: Callable[[list[int]], dict[int, str]]
) -> list[tuple[int, int]]:
    """Return pairs (earlier place, later place) of rows whose run sets overlap by `threshold` or more.

    `signatures` has `place` and `signature`; `texts` gives the texts of places, asked for candidates only.
    """
    width = SIGNATURE_SIZE // BANDS
    groups: set[tuple[int, ...]] = set()
    for band in range(BANDS):
        cut = signatures.select("place", pl.col("signature").list.slice(band * width, width).alias("band"))
        met = cut.group_by("band").agg(pl.col("place").sort()).filter(pl.col("place").list.len() > 1)
        groups |= {tuple(places) for places in met["place"].to_list()}
    wanted = sorted({place for group in groups for place in group})
    sets = {place: runs_of(text) for place, text in texts(wanted).items()}
    found: dict[tuple[int, int], bool] = {}
    for group in groups:
        # Against the first of the group, and against the one before: enough to join a cluster, linear in its size.
        for before, place in pairwise(group):
            for one in {group[0], before}:
                pair = (one, place)
                if pair not in found:
                    found[pair] = _jaccard(sets[one], sets[place]) >= threshold
    return sorted(pair for pair, same in found.items() if same)


def clusters(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return place -> smallest place of its cluster, for the places in `pairs`."""
    parent: dict[int, int] = defaultdict(int)
    for pair in pairs:
        for place in pair:
            parent.setdefault(place, place)

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return {place: root(place) for place in list(parent)}


def _jaccard(one: set[str], other: set[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0
