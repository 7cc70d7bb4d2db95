"""Numbers for Prometheus: counted as plain attributes, shown when somebody asks.

    values      a histogram, a family of series; a counter or a gauge is any attribute
    exposition  writes families as text, a piece at a time; for very many series
    prometheus  gives families to `prometheus_client`, which is imported only there

What counts knows nothing of this but `Histogram`: it adds to attributes of its own, without a lock.
Whoever publishes them has the table of families, and reads the attributes.
"""

from hermes.metrics.exposition import OPENMETRICS, TEXT, content_type, write_series
from hermes.metrics.prometheus import FamiliesCollector, generate
from hermes.metrics.values import Family, Histogram, Series

__all__ = [
    "OPENMETRICS",
    "TEXT",
    "FamiliesCollector",
    "Family",
    "Histogram",
    "Series",
    "content_type",
    "generate",
    "write_series",
]
