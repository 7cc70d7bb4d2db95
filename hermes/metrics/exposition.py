"""Prometheus' text format and OpenMetrics, written a piece at a time.

`prometheus_client` writes everything in one go, at some 16 us a sample; a broker of ten thousand
partitions has a hundred thousand of them, which must neither be written nor kept at once. So this
writes what there may be very many of: counters and gauges. Both formats differ here only in how a
counter's family is called.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from hermes.metrics.values import Family

#: Content types, which also name the formats.
TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: How many samples one piece has: they take a tenth of a millisecond.
_PIECE = 128


def content_type(accept: str) -> str:
    """Choose a format by a request's `Accept` header."""
    return OPENMETRICS if "application/openmetrics-text" in accept.lower() else TEXT


def label_text(names: Iterable[str], values: Iterable[str]) -> str:
    """Write labels as they follow a name: `{topic="clicks"}`; nothing for none."""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def write_series(
    family: Family, samples: Iterable[tuple[str, float]], format_: str
) -> Iterator[bytes]:
    """Write a family of counters or gauges, in pieces of a hundred samples or so.

    Args:
        samples: of each series its labels, as `label_text` writes them, and its number; consumed
            lazily.
        format_: `TEXT` or `OPENMETRICS`.
    """
    name, kind = family.name, family.kind
    title = name.removesuffix("_total") if kind == "counter" and format_ == OPENMETRICS else name
    yield f"# HELP {title} {family.help}\n# TYPE {title} {kind}\n".encode()
    samples = iter(samples)
    while piece := list(islice(samples, _PIECE)):
        yield "".join([f"{name}{labels} {value}\n" for labels, value in piece]).encode()
