"""How a shop takes our calls: its circuit, its bucket of points, and whether somebody has paused it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import CheckConstraint, Float
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import Json, UtcDateTime


class ShopRow(Table):
    """`available` is what the bucket held at `measured_at`, less what is promised to calls that wait their turn;
    `pending` is the cost of the calls that are promised or under way. Every instant is the database's own."""

    __tablename__ = "pricing_shops"
    __table_args__ = (CheckConstraint("circuit IN ('closed', 'open', 'half_open')", name="circuit"),)

    shop: Mapped[str] = mapped_column(primary_key=True)
    circuit: Mapped[str] = mapped_column(default="closed")
    # By kind of call (read, write): refusals and failures in a row.
    streaks: Mapped[Mapping[str, Mapping[str, int]]] = mapped_column(Json, default=dict)
    opened_by: Mapped[str | None]
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    available: Mapped[float] = mapped_column(Float(53))
    maximum: Mapped[float] = mapped_column(Float(53))
    restore_rate: Mapped[float] = mapped_column(Float(53))
    pending: Mapped[float] = mapped_column(Float(53), default=0.0)
    measured_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heard_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When the shop last refused calls for coming too fast, in seconds since 1970; the last hundred.
    refusals: Mapped[Sequence[float]] = mapped_column(Json)
    paused_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    paused_by: Mapped[str | None]
    pause_reason: Mapped[str | None]
