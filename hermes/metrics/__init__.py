"""Prometheus metrics: counted as plain attributes, read when scraped.

Code that counts knows only `Histogram`, and adds to attributes of its own, without a lock. Whoever
publishes them has the table of families, and reads the attributes.
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
