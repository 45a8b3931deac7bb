"""The peak of calls in a sliding window."""

from automation_pipeline.simulator.registries.control import peak
from automation_pipeline_tests.cases import every_case


@every_case(
    ("times", "most"),
    [
        ([], 0),
        ([5.0], 1),
        ([0, 0.5, 0.9, 1.0, 1.4], 4),
        ([0, 1, 2, 3], 1),
        ([2.5, 0.1, 2.0, 2.9], 3),
        ([1, 1, 1], 3),
    ],
)
def test_the_peak_is_the_maximum_over_all_windows(times: list[float], most: int) -> None:
    assert peak(times, 1.0) == most
