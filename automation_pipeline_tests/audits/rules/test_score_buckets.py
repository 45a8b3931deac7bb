"""Buckets of scores leave nothing out and do not overlap."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.audits.models.requests import bucket_name, last_bucket


@given(st.integers(1, 100))
def test_the_last_bucket_reaches_a_hundred_and_holds_it(size: int) -> None:
    last = last_bucket(size)
    assert last % size == 0
    assert last < 100 <= last + size
    assert bucket_name(last, size) == f"{last}-100"
    assert bucket_name(0, size) == f"0-{size}"
