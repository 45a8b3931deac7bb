"""The days whose sales list was asked for: a day without sales is a day that was asked, not one that is missing."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import UtcDateTime


class SalesDayRow(Table):
    """`day` is YYYY-MM-DD. The counts are those of the last list that was understood."""

    __tablename__ = "sales_days"

    day: Mapped[str] = mapped_column(primary_key=True)
    revalidated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    listed: Mapped[int]
    duplicates: Mapped[int]
    new: Mapped[int]
    changed: Mapped[int]
    missing_cle: Mapped[int]
    without_recordings: Mapped[int]
