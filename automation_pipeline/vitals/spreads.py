"""Lengths of time that processes have counted, as histograms. They stay as they are when something is tried again."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

from automation_pipeline.core.spread import BOUNDS_MS, BUCKETS, buckets_measure, sum_measure
from automation_pipeline.storage.measures import Measure
from automation_pipeline.vitals.gauge import Histogram


def measures_of(spreads: Iterable[str]) -> frozenset[str]:
    """The names of the counts that a spread is made of."""
    return frozenset(measure(name) for name in spreads for measure in (buckets_measure, sum_measure))


def histograms_of(spreads: Mapping[str, str], measures: Iterable[Measure]) -> tuple[Histogram, ...]:
    """Of each spread, which comes with its meaning in words."""
    counted = {(one.name, one.labels): one.value for one in measures}
    return tuple(_histogram(name, words, counted) for name, words in spreads.items())


def _histogram(name: str, words: str, counted: Mapping[tuple[str, str], float]) -> Histogram:
    by_bucket = (counted.get((buckets_measure(name), f'le="{bucket}"'), 0.0) for bucket in BUCKETS)
    counts = tuple(accumulate(round(count) for count in by_bucket))
    return Histogram(name, words, BOUNDS_MS, counts, counted.get((sum_measure(name), ""), 0.0))
