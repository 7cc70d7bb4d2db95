"""Passes families to `prometheus_client`, which only this module imports, and only when called.

So code that counts doesn't need it, and an application that has it gets everything in its own
registry.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hermes.metrics.exposition import OPENMETRICS
from hermes.metrics.values import Histogram, Series

_END = b"# EOF\n"


class FamiliesCollector:
    """A collector for `prometheus_client.CollectorRegistry.register`.

    `families`: called for each scrape, in the thread that scrapes.
    """

    def __init__(self, families: Callable[[], Iterable[Series]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
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
        """Empty: nothing is known before the first scrape."""
        return ()


def generate(collector: Any, format_: str) -> bytes:
    """Write what a collector or registry has, without the mark that ends an exposition."""
    import prometheus_client
    from prometheus_client.openmetrics import exposition

    in_openmetrics: Callable[[Any], bytes] = exposition.generate_latest
    if format_ == OPENMETRICS:
        return in_openmetrics(collector).removesuffix(_END)
    return prometheus_client.generate_latest(collector)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))
