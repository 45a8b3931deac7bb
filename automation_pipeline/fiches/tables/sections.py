"""What the tables of the details share: they hang on the fiche, and their keys are the CRM's own order.

A key by position needs no id of its own: details replace each other whole, so an id would not outlive its row.
"""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId


class OfFiche:
    """At most one row a fiche, unless a table adds to the key."""

    fiche_cache_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("fiche_cache.id", ondelete="CASCADE"), primary_key=True, autoincrement=False, sort_order=-2
    )


class RowOfFiche(OfFiche):
    """`row_index` counts from 1 in the CRM's order."""

    row_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, sort_order=-1)
