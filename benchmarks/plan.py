"""Which contestants do how much how often: the default form in under 15 minutes, and the full
one."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from contestants import LIMIT, OURS, OURS_POSTGRES, contestants

# One mapped op a fiche takes minutes for a thousand, and an hour for ten thousand.
SLOW = {"dagster", "dagster_async"}
LARGE = 10_000


@dataclass(frozen=True)
class Heat:
    """So many fiches, so many times, by these."""

    fiches: int
    repetitions: int
    names: tuple[str, ...]

    def turns(self) -> Iterator[tuple[int, str]]:
        """Interleaved, each repetition beginning with another."""
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
) -> list[Heat]:
    """`only`, `fiches` and `repetitions` narrow it down or widen it, as asked for by name."""
    every = tuple(contestants())
    quick = tuple(name for name in every if name not in SLOW)
    alone = (LIMIT, OURS, OURS_POSTGRES)
    heats = (
        [
            Heat(100, 5, every),
            Heat(1000, 5, quick),
            Heat(1000, 1, tuple(SLOW & set(every))),
            Heat(LARGE, 3, quick),
        ]
        if full
        else [Heat(100, 3, every), Heat(1000, 3, quick), Heat(LARGE, 1, alone[:2])]
    )
    if fiches:
        heats = [Heat(number, repetitions or 3, every) for number in fiches]
    chosen = set(only or every)
    wanted = (
        replace(heat, names=tuple(name for name in heat.names if name in chosen)) for heat in heats
    )
    return [
        replace(heat, repetitions=repetitions or heat.repetitions) for heat in wanted if heat.names
    ]
