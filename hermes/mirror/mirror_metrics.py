"""The metrics of a mirror process; docs/monitoring.md has the same rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hermes.metrics import Family, write_series
from hermes.metrics.exposition import label_text
from hermes.mirror.figures import PartitionFigures
from hermes.mirror.status import StatusPublisher

_TOPIC: Final = ("source", "topic")
_PARTITION: Final = ("source", "topic", "partition")

INFO: Final = Family(
    "hermes_mirror_info", "gauge", "Always 1; the labels say what runs.",
    ("mirror", "process", "version", "target"),
)  # fmt: skip
PROBLEMS: Final = Family(
    "hermes_mirror_troubles", "gauge",
    "What is wrong now: sources and brokers that can't be reached, partitions that don't go on.",
)  # fmt: skip
REFUSED: Final = Family(
    "hermes_mirror_refused_topics", "gauge", "Topics that would make a loop.",
)  # fmt: skip

#: Sums over the partitions of a topic, by what they sum up.
BY_TOPIC: Final[dict[str, Family]] = {
    "messages": Family(
        "hermes_mirror_messages_total", "counter",
        "Messages that the target has acknowledged; a compressed set counts as one.", _TOPIC,
    ),
    "bytes": Family(
        "hermes_mirror_bytes_total", "counter", "The same in bytes.", _TOPIC,
    ),
    "duplicates": Family(
        "hermes_mirror_duplicates_total", "counter",
        "Of these messages those that the target had already, and has not stored again.", _TOPIC,
    ),
    "damaged": Family(
        "hermes_mirror_damaged_total", "counter",
        "Stretches of damaged messages that were skipped.", _TOPIC,
    ),
    "lost_bytes": Family(
        "hermes_mirror_lost_bytes_total", "counter",
        "Bytes that the source's retention deleted before they were read.", _TOPIC,
    ),
}  # fmt: skip

LAG: Final = Family(
    "hermes_mirror_lag_bytes", "gauge",
    "From what the target has acknowledged to the source's end, of partitions that this process "
    "has.",
    _PARTITION,
)  # fmt: skip
POSITION: Final = Family(
    "hermes_mirror_position", "gauge", "Up to where the target has acknowledged it.", _PARTITION,
)  # fmt: skip

#: Everything, by name.
FAMILIES: Final = {
    family.name: family for family in (INFO, PROBLEMS, REFUSED, *BY_TOPIC.values(), LAG, POSITION)
}


def write_families(status: StatusPublisher, format_: str) -> Iterator[bytes]:
    """Write everything there is now, a piece at a time; for the format see `metrics.exposition`."""
    now = status.now()
    labels = (now.mirror, now.process, now.version, now.target)
    yield from write_series(INFO, [(label_text(INFO.labels, labels), 1)], format_)
    yield from write_series(PROBLEMS, [("", len(now.errors))], format_)
    yield from write_series(REFUSED, [("", len(now.refused))], format_)
    figures = status.figures()
    for attribute, family in BY_TOPIC.items():
        yield from write_series(family, _sums(family, figures, attribute), format_)
    held = [each for each in figures if each.is_held]
    known = [each for each in held if each.end is not None]
    yield from write_series(LAG, _each(known, lambda e: max(e.end - e.position, 0)), format_)
    yield from write_series(POSITION, _each(held, lambda e: e.position), format_)


def _sums(
    family: Family, figures: Sequence[PartitionFigures], attribute: str
) -> list[tuple[str, float]]:
    sums: dict[tuple[str, str], float] = {}
    for each in figures:
        topic = each.source, each.topic
        sums[topic] = sums.get(topic, 0) + getattr(each, attribute)
    return [(label_text(family.labels, topic), number) for topic, number in sorted(sums.items())]


def _each(
    figures: Sequence[PartitionFigures], number: Callable[[Any], float]
) -> Iterator[tuple[str, float]]:
    for each in figures:
        yield label_text(_PARTITION, (each.source, each.topic, each.partition)), number(each)
