"""Histograms of what has been counted as `core.spread` counts it."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

from automation_pipeline.core.spread import BOUNDS_MS, BUCKETS, buckets_measure, sum_measure
from automation_pipeline.storage.database import Session
from automation_pipeline.storage.measures import all_measures
from automation_pipeline.vitals.gauge import Histogram


def measures_of(spreads: Iterable[str]) -> frozenset[str]:
    """The measures that are told as histograms."""
    return frozenset(measure(name) for name in spreads for measure in (buckets_measure, sum_measure))


def spread_histograms(session: Session, words: Mapping[str, str]) -> tuple[Histogram, ...]:
    """One for each name, with what it says of it."""
    wanted = measures_of(words)
    counted = {(one.name, one.labels): one.value for one in all_measures(session) if one.name in wanted}
    return tuple(_histogram(name, said, counted) for name, said in words.items())


def _histogram(name: str, words: str, counted: Mapping[tuple[str, str], float]) -> Histogram:
    by_bucket = (counted.get((buckets_measure(name), f'le="{bucket}"'), 0.0) for bucket in BUCKETS)
    counts = tuple(accumulate(round(count) for count in by_bucket))
    return Histogram(name, words, BOUNDS_MS, counts, counted.get((sum_measure(name), ""), 0.0))
