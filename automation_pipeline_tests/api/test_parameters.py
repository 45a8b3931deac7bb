"""Pagination of lists."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.api.parameters import Pagination, pagination


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(0, 12_000))
def test_pagination_has_correct_page_numbers_and_neighbours(
    total: int, limit: int, offset: int
) -> None:
    page = Pagination.model_validate(pagination(total, limit, offset))
    assert page.has_next_page == (len(range(total)[offset + limit :]) > 0)
    assert page.has_prev_page == (offset > 0)
    assert (page.total, page.limit, page.offset) == (total, limit, offset)
    assert page.current_page == len(range(0, offset + 1, limit))
    assert page.total_pages == max(1, len(range(0, total, limit)))
    if offset % limit == 0 and offset < total:
        assert 1 <= page.current_page <= page.total_pages
        assert page.has_next_page == (page.current_page < page.total_pages)
