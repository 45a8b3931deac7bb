"""Batches: few and large in one process, shared between several, never too large to be lost."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.rules.fiches import LARGEST_OF_SEVERAL, MOST_BATCHES, batch_size
from automation_pipeline_tests.tables import every_case


@every_case(
    ("fiches", "processes", "cap", "size"),
    [
        (1, 1, None, 1000),
        (1_000, 1, None, 1000),
        (10_000, 1, None, 1000),
        (100_000, 1, None, 2500),
        (10, 2, None, 50),
        (400, 2, None, 50),
        (2_000, 2, None, 250),
        (10_000, 2, None, 500),
        (100_000, 2, None, 1000),
        (1_000_000, 64, None, 1000),
        (100, 1, 300, 25),
        (100, 1, 301, 26),
        (20, 1, 10, 10),
        (100, 1, 10, 13),
        (2_000, 1, 300, 250),
        (1_000, 1, 100_000, 1000),
        (10_000, 1, 300, 1000),
        (100_000, 1, 300, 2500),
        (400, 2, 10, 50),
    ],
)
def test_the_size_follows_from_the_fiches_the_processes_and_the_cap(
    fiches: int, processes: int, cap: int | None, size: int
) -> None:
    assert batch_size(fiches, processes, cap) == size


@given(st.integers(min_value=0, max_value=2_000_000), st.integers(min_value=1, max_value=64))
def test_there_are_some_tens_of_batches_unless_they_would_be_too_large_to_be_lost(
    fiches: int, processes: int
) -> None:
    size = batch_size(fiches, processes)
    assert size >= 1
    assert -(-fiches // size) <= MOST_BATCHES or (processes > 1 and size == LARGEST_OF_SEVERAL)
