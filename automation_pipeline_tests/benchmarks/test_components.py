"""The targets of component measurements, and the batches of fiches that the gate is measured with."""

import sys
from collections.abc import Sequence
from pathlib import Path

from automation_pipeline_tests.cases import every_case

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    import components  # pyright: ignore[reportMissingImports]  # a script in the same folder, not a package
finally:
    del sys.path[0]


@every_case(("seconds", "reached"), [(0.99, True), (1.0, False), (1.3, False)])
def test_a_value_below_its_bar_passes(seconds: float, reached: bool) -> None:
    bar = components.below("due tick", seconds, "s", 1.0)
    assert (bar.wanted, bar.found, bar.is_reached) == ("< 1 s", f"{seconds:.3g} s", reached)


def test_a_value_without_a_bar_gives_no_result() -> None:
    assert components.below("due tick", 0.1, "s", None) is None


@every_case(
    ("by_size", "found", "reached"),
    [
        ({100: [12, 12], 10_000: [12, 12]}, "12", True),
        ({100: [12, 12], 10_000: [13, 12]}, "12 or 13", False),
    ],
)
def test_one_more_statement_fails_the_constant_bar(
    by_size: dict[int, Sequence[int]], found: str, reached: bool
) -> None:
    bar = components.constant("statements", by_size)
    assert (bar.found, bar.is_reached) == (found, reached)


def test_batches_are_complete_and_within_the_table() -> None:
    created = components.batches_of(fiches=5000, size=1000, repetitions=3)
    assert [list(batch)[:2] for batch in created["side by side"]] == [
        [1, 2],
        [1334, 1335],
        [2667, 2668],
    ]
    for batch in (batch for batches in created.values() for batch in batches):
        assert len(set(batch)) == 1000
        assert set(batch) <= set(range(1, 5001))
