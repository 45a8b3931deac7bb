"""Runs that were asked to try their dead letters again, and those that could not be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True)
class RetriedRuns(Sequence[int]):
    """The runs that try again; `skipped` says by run why it does not."""

    runs: tuple[int, ...]
    skipped: Mapping[int, str]

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[int]:
        return iter(self.runs)
