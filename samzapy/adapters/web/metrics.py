"""A job's numbers in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from samzapy.inspection.metrics import Kind, Metric, Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily | SummaryMetricFamily] = {}
        for sample in self._samples:
            family = families.get(sample.metric.name)
            if family is None:
                family = families[sample.metric.name] = _family(sample.metric)
            if isinstance(family, SummaryMetricFamily):
                family.add_metric(sample.labels, sample.count, sample.value)
            else:
                family.add_metric(sample.labels, sample.value)
        yield from families.values()


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily | SummaryMetricFamily:
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        case Kind.SUMMARY:
            return SummaryMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def exposition(samples: Iterable[Sample]) -> bytes:
    """The body of `GET /metrics`, in `CONTENT_TYPE`."""
    registry = CollectorRegistry()
    registry.register(_Samples(list(samples)))
    return generate_latest(registry)
