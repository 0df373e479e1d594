"""The table of mutations stays true: each names text that stands in the code, and a sample is tried."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.mutations import MUTATIONS, PROJECT, Mutation, run

SAMPLE_SEED = 20261130
TRIED = [mutation for mutation in MUTATIONS if not mutation.equivalent]
SAMPLE = random.Random(SAMPLE_SEED).sample(TRIED, 10)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_that_a_mutation_takes_out_stands_in_the_code(mutation: Mutation) -> None:
    assert mutation.before in (PROJECT / "runtime" / mutation.file).read_text()
    assert mutation.before != mutation.after


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", SAMPLE, ids=lambda mutation: mutation.name)
def test_a_test_fails_for_each_mutation_of_a_sample(mutation: Mutation, tmp_path: Path) -> None:
    caught, line = run(mutation, tmp_path)
    assert caught, line
