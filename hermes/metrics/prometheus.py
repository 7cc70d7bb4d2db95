"""Gives families to `prometheus_client`, the only module that imports it, and only when called.

So whoever counts needs it not, and an application that has it gets everything in its own registry.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hermes.metrics.exposition import OPENMETRICS
from hermes.metrics.values import Histogram, Series

_END = b"# EOF\n"


class FamiliesCollector:
    """What `prometheus_client.CollectorRegistry.register` takes.

    Args:
        families: called for each scrape, in the thread that scrapes.
    """

    def __init__(self, families: Callable[[], Iterable[Series]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        """See `prometheus_client.registry.Collector`."""
        from prometheus_client import metrics_core

        kinds: dict[str, Any] = {
            "counter": metrics_core.CounterMetricFamily,
            "gauge": metrics_core.GaugeMetricFamily,
            "histogram": metrics_core.HistogramMetricFamily,
        }
        for family, samples in self._families():
            metric = kinds[family.kind](family.name, family.help, labels=family.labels)
            for labels, value in samples:
                if isinstance(value, Histogram):
                    buckets = [(_bound(bound), n) for bound, n in value.cumulative()]
                    metric.add_metric(labels, buckets, value.sum)
                else:
                    metric.add_metric(labels, value)
            yield metric

    def describe(self) -> Iterable[Any]:
        """See `prometheus_client.registry.Collector`: nothing is said before the first scrape."""
        return ()


def generate(collector: Any, format_: str) -> bytes:
    """Write what a collector has, without the mark that ends an exposition.

    Args:
        collector: has `collect`, as `prometheus_client`'s collectors and registries do.
        format_: see `hermes.metrics.exposition`.
    """
    import prometheus_client
    from prometheus_client.openmetrics import exposition

    in_openmetrics: Callable[[Any], bytes] = exposition.generate_latest
    if format_ == OPENMETRICS:
        return in_openmetrics(collector).removesuffix(_END)
    return prometheus_client.generate_latest(collector)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))
