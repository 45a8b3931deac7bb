"""Which page of a list an answer is."""

from pydantic import BaseModel


class Pagination(BaseModel):
    total: int
    limit: int
    offset: int
    current_page: int
    total_pages: int
    has_next_page: bool
    has_prev_page: bool


def pagination(total: int, limit: int, offset: int) -> dict[str, int | bool]:
    """Pages count from 1, also where there is nothing to show."""
    pages = max(1, -(-total // limit))
    return {
        "total": total,
        "limit": limit,
        "offset": offset,
        "current_page": offset // limit + 1,
        "total_pages": pages,
        "has_next_page": offset + limit < total,
        "has_prev_page": offset > 0,
    }
