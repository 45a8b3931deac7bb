"""Which bucket a time falls into."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.metrics import BOUNDS_MS, BUCKETS, bucket_of
from automation_pipeline_tests.tables import every_case


@every_case(
    ("milliseconds", "bucket"),
    [
        (0, "1000.0"),
        (1000, "1000.0"),
        (1000.5, "5000.0"),
        (14_400_000, "14400000.0"),
        (14_400_001, "+Inf"),
    ],
)
def test_a_bound_is_part_of_its_bucket(milliseconds: float, bucket: str) -> None:
    assert bucket_of(milliseconds) == bucket


@given(milliseconds=st.floats(0, 1e9))
def test_a_time_is_in_the_smallest_bucket_that_holds_it(milliseconds: float) -> None:
    place = BUCKETS.index(bucket_of(milliseconds))
    assert place == sum(bound < milliseconds for bound in BOUNDS_MS)
