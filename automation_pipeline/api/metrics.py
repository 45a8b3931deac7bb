"""The metrics page, as Prometheus reads it."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from automation_pipeline.vitals.gauges import Gauge

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def exposition(gauges: Sequence[Gauge]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted(gauges))
    return generate_latest(registry)


class _Counted(Collector):
    """What was counted a moment ago: all processes share it, so that none counts for itself."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        return map(_family, self._gauges)


def _family(gauge: Gauge) -> Metric:
    names = tuple(dict.fromkeys(_label_names(gauge)))
    family = _FAMILIES[gauge.kind](gauge.name, gauge.words, labels=names)
    for sample in gauge.samples:
        family.add_metric([sample.labels.get(name, "") for name in names], sample.value)
    return family


def _label_names(gauge: Gauge) -> Iterator[str]:
    for sample in gauge.samples:
        yield from sample.labels
