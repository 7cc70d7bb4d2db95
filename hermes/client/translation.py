"""Translating offsets between a cluster and one that mirrors it, by the spans that a broker keeps.

Offsets are bytes of a partition, so a message's differ from cluster to cluster. Where a mirror has
copied byte for byte they translate exactly; where it has filtered or split partitions, to the batch
that it sent: a reader that continues there may see some messages again, and misses none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hermes.protocol import SourceFlags, SourceSpan


class SourceMap:
    """Where a partition has its sources.

    Args:
        end: where it ended when it was asked.
        positions: by source, up to which of its offsets it is here.
        spans: by source, where its ranges lie, in order.
    """

    def __init__(
        self,
        partition: int,
        earliest: int,
        end: int,
        positions: Mapping[str, int],
        spans: Iterable[tuple[str, Sequence[SourceSpan]]],
    ) -> None:
        self.partition = partition
        self.earliest = earliest
        self.end = end
        self.positions = dict(positions)
        self._spans = {source: tuple(some) for source, some in spans}

    def spans(self, source: str) -> tuple[SourceSpan, ...]:
        return self._spans.get(source, ())

    def to_target(self, source: str, offset: int) -> int:
        """Translate the next offset to be read of a source to one in the partition.

        That is the first at which the partition may have something of the source from that offset
        on; its end when it has nothing of that kind (yet).
        """
        spans = self.spans(source)
        index = bisect_right(spans, offset, key=lambda span: span.source_end)
        if index == len(spans) or offset >= self.positions.get(source, 0):
            return self.end
        span = spans[index]
        inside = offset - span.source_begin if span.flags & SourceFlags.VERBATIM else 0
        return min(max(span.log_begin + max(inside, 0), self.earliest), self.end)


class TranslatedPlace(NamedTuple):
    """Where a reader continues in a partition of the target.

    Attributes:
        unread: sources of the same clusters that the reader has no place in: they count from their
            beginning.
        ahead: sources that the reader has read further than they are here: it will see some
            messages again once they arrive.
    """

    offset: int
    unread: tuple[str, ...]
    ahead: tuple[str, ...]


def translate(source_map: SourceMap, places: Mapping[str, int]) -> TranslatedPlace | None:
    """Translate a reader's next offsets, by source, to a place in a partition of the target.

    Several sources may be mixed in the partition. The place is the first that one of them asks for,
    so that nothing is missed; of the others some messages may be read again. None when nothing of
    their clusters is in the partition.
    """
    clusters = {source.partition("/")[0] for source in places}
    sources = {
        plain: name
        for plain, name in _latest(source_map.positions).items()
        if plain.partition("/")[0] in clusters
    }
    if not sources:
        return None
    return TranslatedPlace(
        min(source_map.to_target(name, places.get(plain, 0)) for plain, name in sources.items()),
        tuple(sorted(plain for plain in sources if plain not in places)),
        tuple(
            sorted(
                plain
                for plain, name in sources.items()
                if places.get(plain, 0) > source_map.positions[name]
            )
        ),
    )


def _latest(names: Iterable[str]) -> dict[str, str]:
    """Of each source its name in the highest generation.

    A mirror adds `#2` to the name, and so on, when the source's topic was deleted and made anew.
    """
    found: dict[str, tuple[int, str]] = {}
    for name in names:
        plain, _, generation = name.partition("#")
        number = int(generation) if generation.isdecimal() else 1
        found[plain] = max(found.get(plain, (0, "")), (number, name))
    return {plain: name for plain, (_, name) in found.items()}
