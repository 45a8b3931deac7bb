"""The metrics page, as Prometheus reads it."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from automation_pipeline.vitals.gauge import Gauge, Histogram

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def exposition(gauges: Sequence[Gauge], histograms: Sequence[Histogram] = ()) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(gauges, histograms))
    return generate_latest(registry)


class _Counted(Collector):
    """What was counted a moment ago: all processes share it, so that none counts for itself."""

    def __init__(self, gauges: Sequence[Gauge], histograms: Sequence[Histogram]) -> None:
        self._gauges, self._histograms = gauges, histograms

    def collect(self) -> Iterable[Metric]:
        yield from map(_family, self._gauges)
        yield from map(_spread, self._histograms)


def _family(gauge: Gauge) -> Metric:
    names = tuple(dict.fromkeys(_label_names(gauge)))
    family = _FAMILIES[gauge.kind](gauge.name, gauge.words, labels=names)
    for sample in gauge.samples:
        family.add_metric([sample.labels.get(name, "") for name in names], sample.value)
    return family


def _spread(histogram: Histogram) -> Metric:
    bounds = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
    family = HistogramMetricFamily(histogram.name, histogram.words)
    family.add_metric([], list(zip(bounds, histogram.counts, strict=True)), histogram.total)
    return family


def _label_names(gauge: Gauge) -> Iterator[str]:
    for sample in gauge.samples:
        yield from sample.labels
