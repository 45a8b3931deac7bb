"""What a change comes to."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.org_jobs.models.organisations import differences

DOCUMENTS = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 2))


@given(DOCUMENTS, DOCUMENTS)
def test_only_what_differs_is_told_as_it_was_and_as_it_is(
    before: dict[str, object], after: dict[str, object]
) -> None:
    was, is_now = differences(before, after)
    assert was.keys() == is_now.keys()
    assert all(was[name] == before.get(name) != after[name] == is_now[name] for name in is_now)
    assert all(before.get(name) == after[name] for name in after.keys() - is_now.keys())
