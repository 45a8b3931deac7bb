"""Counts that all processes add to, for the metrics page: a row a name and its labels, only ever raised."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import UniqueConstraint, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from automation_pipeline.storage.bulk import insert_into
from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId


class MeasureRow(Table):
    __tablename__ = "measures"
    __table_args__ = (UniqueConstraint("name", "labels"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    # As Prometheus writes them, in the order of their names: provider="crm",status="200"
    labels: Mapped[str]
    value: Mapped[float]


@dataclass(frozen=True)
class Measure:
    name: str
    labels: str
    value: float


def add_measures(session: Session, measures: Iterable[Measure]) -> None:
    """In one order for everybody, so that two never wait for each other."""
    for one in sorted(measures, key=lambda measure: (measure.name, measure.labels)):
        insert = insert_into(session, MeasureRow)
        session.execute(
            insert.values(name=one.name, labels=one.labels, value=one.value).on_conflict_do_update(
                index_elements=["name", "labels"], set_={"value": MeasureRow.value + one.value}
            )
        )


def all_measures(session: Session) -> list[Measure]:
    rows = session.execute(select(MeasureRow.name, MeasureRow.labels, MeasureRow.value).order_by(MeasureRow.id))
    return [Measure(*row) for row in rows.tuples()]
