"""What a redrive would do: counted within bounds, and from which order it can be started."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hermes.client.retrying.redrive import LetterCounts, LetterFilter
from hermes.console.cluster_client import ClusterClient
from hermes.console.dead_letters import LetterSender, read_letters
from hermes.console.page_request import InputError
from hermes.console.topic_views import TopicReader, TopicView
from hermes.console.viewer import Viewer
from hermes.errors import UnknownTopicError
from hermes.quoting import quoted

_MOST_SCANNED: Final = 100_000
_MOST_SECONDS: Final = 5.0
_MOST_TARGETS: Final = 100


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """What was found.

    Attributes:
        ranges: by partition, from where to where the redrive would read.
        is_limited: whether the look ended before these did: there may be more of everything.
        targets: where letters would go, and how many.
        problems: why some would not go there, for people.
    """

    counts: LetterCounts
    damaged: int
    ranges: Mapping[str, tuple[int, int]]
    is_limited: bool
    targets: Counter[str]
    problems: tuple[str, ...]


def preview(
    cluster: ClusterClient,
    topics: TopicReader,
    topic: TopicView,
    chosen: LetterFilter,
    destination: str,
    starts: Mapping[str, int],
    viewer: Viewer,
    clock: Callable[[], float] = time.monotonic,
) -> RedrivePreview:
    """Look at the dead letters of a topic.

    Args:
        starts: by partition, where to begin; the others begin with their oldest message.

    Raises:
        InputError: there is no such partition, or place in it.
        HermesError: one can't be read.
    """
    ranges = _ranges(topic, starts)
    counts, targets = LetterCounts(), Counter[str]()
    sender = LetterSender(cluster, topics, destination)
    until, scanned, damaged, is_limited = clock() + _MOST_SECONDS, 0, 0, False
    for row in topic.partitions:
        start, end = ranges.get(row.name, (0, 0))
        if start >= end:
            continue
        for each in read_letters(cluster, topic, row, start, end):
            scanned += 1
            if scanned > _MOST_SCANNED or clock() > until:
                is_limited = True
                break
            if each.letter is None:
                damaged += bool(each.damage)
                counts.strange += not each.damage
            elif not chosen.chooses(each.letter):
                counts.others += 1
            else:
                counts.add(each.letter)
                name = sender.topic_of(each.letter)
                if name in targets or len(targets) < _MOST_TARGETS:
                    targets[name] += 1
    problems = tuple(_problems(topics, targets, viewer))
    return RedrivePreview(counts, damaged, ranges, is_limited, targets, problems)


def _ranges(topic: TopicView, starts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    ranges = {}
    known = {}
    for name, offset in starts.items():
        row = topic.partition(name)
        if row is None:
            raise InputError(f"there is no partition {name}")
        known[row.name] = offset
    for row in topic.partitions:
        if row.earliest is None or row.high_watermark is None:
            continue
        start = known.get(row.name, row.earliest)
        if start > row.high_watermark:
            raise InputError(f"partition {row.label} ends at {row.high_watermark}")
        ranges[row.name] = max(start, row.earliest), row.high_watermark
    return ranges


def _problems(topics: TopicReader, targets: Counter[str], viewer: Viewer) -> list[str]:
    found = []
    for name in targets:
        if not viewer.produces_to(name):
            found.append(f"You may not produce to topic {quoted(name)}: its letters are left out.")
            continue
        try:
            topics.topic(name)
        except UnknownTopicError:
            found.append(f"There is no topic {quoted(name)}: the redrive would fail there.")
    return found
