"""A plan until it is whole: in a file without a name that is gone with its process, so that the database is not held
while the shop is asked, and nothing is kept of half a plan. Of each variant only its ids stay in memory."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from tempfile import SpooledTemporaryFile
from types import TracebackType

from automation_pipeline.pricing.domain.plan import LeftAlone, PlannedTarget, Tally
from automation_pipeline.pricing.domain.variant import Variant
from automation_pipeline.pricing.store.plan_rows import skipped_columns, target_columns

_IN_MEMORY_BYTES = 4 * 1024 * 1024

Columns = Mapping[str, object]


class Draft(AbstractContextManager["Draft"]):
    """A catalogue that changes while it is read may tell of a variant twice: the first time counts."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._file = SpooledTemporaryFile[bytes](max_size=_IN_MEMORY_BYTES, mode="w+b")
        self._seen: set[str] = set()
        self._targets: dict[str, list[int]] = {}
        self._skipped: list[int] = []

    def new(self, variants: Iterable[Variant]) -> list[Variant]:
        """Those that were not told of before."""
        fresh = list({one.variant_id: one for one in variants if one.variant_id not in self._seen}.values())
        self._seen.update(one.variant_id for one in fresh)
        self.tally.catalogue += len(fresh)
        return fresh

    def add(self, plans: Iterable[PlannedTarget | LeftAlone]) -> None:
        for plan in plans:
            self.tally.count(plan)
            if isinstance(plan, PlannedTarget):
                places = self._targets.setdefault(plan.variant.product_id, [])
                places.append(self._written(target_columns(plan)))
            elif plan.is_listed:
                self._skipped.append(self._written(skipped_columns(plan)))

    def targets(self) -> Iterator[Columns]:
        """The variants of a product one after the other."""
        return self._read(chain.from_iterable(self._targets.values()))

    def skipped(self) -> Iterator[Columns]:
        return self._read(self._skipped)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _written(self, columns: Columns) -> int:
        place = self._file.tell()
        self._file.write(json.dumps(columns).encode() + b"\n")
        return place

    def _read(self, places: Iterable[int]) -> Iterator[Columns]:
        for place in places:
            self._file.seek(place)
            yield json.loads(self._file.readline())
