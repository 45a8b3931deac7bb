"""Which check of a run tells how its prices stand now: the one that was made last, if it could say anything."""

from sqlalchemy import ColumnElement, Select, and_, func, or_, select

from automation_pipeline.pricing.tables import CheckRow


def is_telling() -> ColumnElement[bool]:
    """It read a price, or found that the run has none left in the shop. What could not be read says nothing."""
    has_none_left = and_(CheckRow.total_checked == 0, CheckRow.unverified == 0)
    return and_(CheckRow.checked_at.is_not(None), or_(CheckRow.total_checked > 0, has_none_left))


def last_checks(*of: ColumnElement[bool]) -> Select[tuple[int]]:
    """The ids of the last one of each run, of those that are asked about. A check made again keeps its old id."""
    newest_first = CheckRow.checked_at.desc(), CheckRow.id.desc()
    place = func.row_number().over(partition_by=CheckRow.rule_run_id, order_by=newest_first).label("place")
    placed = select(CheckRow.id, place).where(is_telling(), *of).subquery()
    return select(placed.c.id).where(placed.c.place == 1)
