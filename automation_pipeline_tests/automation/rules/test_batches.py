"""Batches: few and large in one process, shared between several, never too large to be lost."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.rules.selection import (
    LARGEST_OF_SEVERAL,
    MOST_BATCHES,
    batch_size,
)
from automation_pipeline_tests.tables import every_case


@every_case(
    ("fiches", "processes", "size"),
    [
        (1, 1, 1000),
        (1_000, 1, 1000),
        (10_000, 1, 1000),
        (100_000, 1, 2500),
        (10, 2, 50),
        (400, 2, 50),
        (2_000, 2, 250),
        (10_000, 2, 500),
        (100_000, 2, 1000),
        (1_000_000, 64, 1000),
    ],
)
def test_the_size_follows_from_the_number_of_fiches_and_of_processes(
    fiches: int, processes: int, size: int
) -> None:
    assert batch_size(fiches, processes) == size


@given(st.integers(min_value=0, max_value=2_000_000), st.integers(min_value=1, max_value=64))
def test_there_are_some_tens_of_batches_unless_they_would_be_too_large_to_be_lost(
    fiches: int, processes: int
) -> None:
    size = batch_size(fiches, processes)
    assert size >= 1
    assert -(-fiches // size) <= MOST_BATCHES or (processes > 1 and size == LARGEST_OF_SEVERAL)
