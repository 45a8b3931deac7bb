"""Which competitors run how often with how many fiches: the default plan takes less than 15
minutes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from competitors import LIMIT, OURS, OURS_POSTGRES, competitors

# One mapped op per fiche takes minutes for 1,000 fiches, and an hour for 10,000.
SLOW = {"dagster", "dagster_async"}
LARGE = 10_000


@dataclass(frozen=True)
class Round:
    """Repetitions of some competitors at one size."""

    fiches: int
    repetitions: int
    names: tuple[str, ...]

    def turns(self) -> Iterator[tuple[int, str]]:
        """Interleaved. Each repetition begins with another competitor."""
        for repetition in range(self.repetitions):
            first = repetition % len(self.names)
            for name in (*self.names[first:], *self.names[:first]):
                yield repetition, name


def plan(
    *,
    only: Collection[str] = (),
    fiches: Sequence[int] = (),
    repetitions: int = 0,
    full: bool = False,
) -> list[Round]:
    """`only`, `fiches` and `repetitions` replace parts of the default plan."""
    every = tuple(competitors())
    quick = tuple(name for name in every if name not in SLOW)
    alone = (LIMIT, OURS, OURS_POSTGRES)
    rounds = (
        [
            Round(100, 5, every),
            Round(1000, 5, quick),
            Round(1000, 1, tuple(SLOW & set(every))),
            Round(LARGE, 3, quick),
        ]
        if full
        else [Round(100, 3, every), Round(1000, 3, quick), Round(LARGE, 1, alone[:2])]
    )
    if fiches:
        rounds = [Round(number, repetitions or 3, every) for number in fiches]
    chosen = set(only or every)
    wanted = (
        replace(round_, names=tuple(name for name in round_.names if name in chosen))
        for round_ in rounds
    )
    return [
        replace(round_, repetitions=repetitions or round_.repetitions)
        for round_ in wanted
        if round_.names
    ]
