"""Which chunks a step that verifies the product gets to read."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import Timeline
from automation_pipeline.audits.rules.tools import excerpt
from automation_pipeline_tests.audits.rules.timelines import step, timeline, timelines
from automation_pipeline_tests.tables import every_case

STEP = step(
    name="Garanties", keywords=("Hospitalisation",), control_points=("Le délai de carence est dit",)
)
NOTHING = "rien du tout"


@every_case(
    ("calls", "max_chunks", "chosen"),
    [
        ([[NOTHING, NOTHING, "vos garanties", NOTHING, NOTHING]], 10, {(0, 1), (0, 2), (0, 3)}),
        (
            [["HOSPITALISATION !", NOTHING, NOTHING], [NOTHING, NOTHING, "un delai"]],
            10,
            {(0, 0), (0, 1), (1, 1), (1, 2)},
        ),
        # The better one wins, then the earlier one.
        ([["garanties", NOTHING, NOTHING, "garanties, délai"], ["garanties"]], 1, {(0, 2), (0, 3)}),
        ([["garanties", NOTHING, NOTHING, NOTHING], ["garanties"]], 1, {(0, 0), (0, 1)}),
        # Words of three letters are no terms: "dit", "est".
        ([[NOTHING, "est dit", NOTHING], ["a"], []], 10, {(0, 0), (0, 1), (1, 0)}),
        ([], 10, set()),
    ],
)
def test_the_best_chunks_and_their_neighbours_are_chosen(
    calls: list[list[str]], max_chunks: int, chosen: set[tuple[int, int]]
) -> None:
    assert excerpt(timeline(*calls), STEP, max_chunks) == chosen


@given(timelines(), st.integers(1, 10))
def test_an_excerpt_holds_what_exists_and_something_of_it(calls: Timeline, max_chunks: int) -> None:
    chosen = excerpt(calls, STEP, max_chunks)
    assert all(calls.chunk(*place) for place in chosen)
    assert bool(chosen) == bool(calls.chunk_count)
    assert len(chosen) <= max(3 * max_chunks, 2 * len(calls.recordings))
