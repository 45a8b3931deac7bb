"""Evaluates measurements: medians, spreads, ratios to the limit, and which targets are reached.
Pure functions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from competitors import LIMIT, NO_PEERS, OURS, Measurement

MOST_OF_LIMIT = {1000: 1.20, 10_000: 1.06}
MOST_MEMORY_GROWTH, MOST_MEGABYTES, MOST_GROWTH, LEAST_SHARE, MOST_START = 1.3, 350, 10.5, 0.98, 2.5


@dataclass(frozen=True, kw_only=True)
class Line:
    """One competitor at one size. `ratio` is the median of its time divided by that of the limit in
    the same repetition, or None without the limit; `over_start` is the same without the start of
    both."""

    name: str
    fiches: int
    times: tuple[float, ...]
    without_start: float
    ratio: float | None
    over_start: float | None
    last: Measurement

    @property
    def seconds(self) -> float:
        return median(self.times)

    @property
    def spread(self) -> float:
        """Half the distance between the fastest and the slowest time, divided by the median."""
        return (max(self.times) - min(self.times)) / 2 / self.seconds


@dataclass(frozen=True)
class Bar:
    what: str
    wanted: str
    found: str
    is_reached: bool


def lines_of(measured: Sequence[tuple[int, Measurement]]) -> list[Line]:
    """`measured` pairs each measurement with the number of its repetition."""
    found: dict[tuple[int, str], dict[int, Measurement]] = defaultdict(dict)
    for repetition, each in measured:
        found[each.fiches, each.name][repetition] = each
    return [
        _line(number, name, times, found.get((number, LIMIT), {}))
        for (number, name), times in found.items()
    ]


def _line(
    fiches: int, name: str, times: Mapping[int, Measurement], limit: Mapping[int, Measurement]
) -> Line:
    pairs = [(each, limit[repetition]) for repetition, each in times.items() if repetition in limit]
    every = list(times.values())
    return Line(
        name=name,
        fiches=fiches,
        times=tuple(each.seconds for each in every),
        without_start=median(each.without_start for each in every),
        ratio=median(each.seconds / bare.seconds for each, bare in pairs) if pairs else None,
        over_start=median(each.without_start / bare.without_start for each, bare in pairs)
        if pairs
        else None,
        last=max(every, key=lambda each: each.megabytes),
    )


def bars_of(
    lines: Sequence[Line], *, share: float | None = None, start: float | None = None
) -> list[Bar]:
    """The targets for which there are measurements."""
    known = {(line.fiches, line.name): line for line in lines}
    bars = [*_limit_bars(known), *_peer_bars(lines, known), *_growth_bars(known)]
    if share is not None:
        wanted = f">= {LEAST_SHARE:.0%}"
        bars.append(
            Bar("share of the ideal under a cap", wanted, f"{share:.1%}", share >= LEAST_SHARE)
        )
    if start is not None:
        found = f"{start:.2f}"
        bars.append(
            Bar("bare start / import dagster", f"<= {MOST_START}", found, start <= MOST_START)
        )
    return bars


def _limit_bars(known: Mapping[tuple[int, str], Line]) -> list[Bar]:
    lines = [
        (known[number, OURS], most)
        for number, most in MOST_OF_LIMIT.items()
        if (number, OURS) in known
    ]
    return [
        Bar(
            f"ours / limit, {line.fiches:,} fiches",
            f"<= {most:.2f}",
            f"{line.ratio:.2f}",
            line.ratio <= most,
        )
        for line, most in lines
        if line.ratio is not None
    ]


def _peer_bars(lines: Sequence[Line], known: Mapping[tuple[int, str], Line]) -> list[Bar]:
    """Compares with the fastest peer. Below 1,000 fiches, all times are without the start."""
    bars = []
    for number in sorted({line.fiches for line in lines}):
        peers = [line for line in lines if line.fiches == number and line.name not in NO_PEERS]
        pipeline = known.get((number, OURS))
        if not peers or pipeline is None:
            continue

        def taken(line: Line, without_start: bool = number < 1000) -> float:
            return line.without_start if without_start else line.seconds

        best = min(peers, key=taken)
        ratio = taken(pipeline) / taken(best)
        what = f"ours / best peer ({best.name}), {number:,} fiches{', without starts' if number < 1000 else ''}"
        bars.append(Bar(what, "< 1.00", f"{ratio:.2f}", ratio < 1))
    return bars


def _growth_bars(known: Mapping[tuple[int, str], Line]) -> list[Bar]:
    small, large = known.get((1000, OURS)), known.get((10_000, OURS))
    if small is None or large is None:
        return []
    memory = large.last.megabytes / small.last.megabytes
    growth = large.without_start / small.without_start
    megabytes = large.last.megabytes
    return [
        Bar(
            "memory at 10,000 / at 1,000",
            f"<= {MOST_MEMORY_GROWTH}",
            f"{memory:.2f}",
            memory <= MOST_MEMORY_GROWTH,
        ),
        Bar(
            "memory at 10,000",
            f"< {MOST_MEGABYTES} MB",
            f"{megabytes:.0f} MB",
            megabytes < MOST_MEGABYTES,
        ),
        Bar(
            "time at 10,000 / at 1,000, without starts",
            f"<= {MOST_GROWTH}",
            f"{growth:.2f}",
            growth <= MOST_GROWTH,
        ),
    ]
