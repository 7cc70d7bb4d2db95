"""Copies messages into other topics, and accounts for its progress."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.cli.batch_sender import BatchSender
from hermes.cli.line_batches import LineBatch
from hermes.cli.partition_reader import Chunk, PartitionReader
from hermes.cli.terminal import note, write_json, write_line
from hermes.client.rate_pacing import Pace
from hermes.config.units import format_bytes
from hermes.protocol import Message

_BATCH_MESSAGES: Final = 5000

# A topic and a partition, and what goes there: payloads, each with the offset after its message;
# and these messages, where what else they have goes there as well.
Sorted: TypeAlias = tuple[tuple[str, int], list[tuple[bytes, int]], list[Message]]


class CopyPlan(NamedTuple):
    reader: PartitionReader
    start: int
    end: int


@dataclass(slots=True)
class _Copied:
    """What was copied of one partition; `offset` is where to continue."""

    start: int
    offset: int
    messages: int = 0
    payload_bytes: int = 0


def sort_by_partition(topic: str, to_partition: int | None, chunk: Chunk) -> Iterator[Sorted]:
    """Send a partition to the one with the same number, or all to one."""
    partition = chunk.partition if to_partition is None else to_partition
    payloads = [(message.payload or b"", end) for message, end in chunk.messages]
    yield (topic, partition), payloads, [message for message, _ in chunk.messages]


class Copy:
    def __init__(
        self,
        plans: Mapping[int, CopyPlan],
        sort: Callable[[Chunk], Iterable[Sorted]],
        make_sender: Callable[[str, int], BatchSender],
        pace: Pace,
    ) -> None:
        self._plans = plans
        self._sort = sort
        self._make_sender = make_sender
        self._pace = pace
        self._senders: dict[tuple[str, int], BatchSender] = {}
        self._copied: dict[int, _Copied] = {
            number: _Copied(plan.start, plan.start) for number, plan in plans.items()
        }

    def add(self, chunk: Chunk, advance: Callable[[int], None]) -> None:
        copied = self._copied[chunk.partition]
        for target, messages, whole in self._sort(chunk):
            if target not in self._senders:
                self._senders[target] = self._make_sender(*target)
            done = 0
            for piece in _batches(self._pace, [payload for payload, _ in messages]):
                size = sum(map(len, piece))
                batch = LineBatch(piece, size, whole[done : done + len(piece)])
                self._senders[target].send(batch)
                done += len(piece)
                following = messages[done - 1][1]
                advance(max(following - copied.offset, 0))
                copied.offset = following
                copied.messages += len(piece)
                copied.payload_bytes += size

    def finish(self) -> None:
        """Return when the broker has read everything. Raises ClientError."""
        for sender in self._senders.values():
            sender.finish()
        for number, copied in self._copied.items():
            plan = self._plans[number]  # damage at its end may have been skipped
            copied.offset = max(copied.offset, min(plan.reader.offset, plan.end))

    def note_position(self) -> None:
        for number, copied in self._copied.items():
            if copied.messages:
                where = f"partition {number} was copied up to offset {copied.offset}"
                note(f"{where}: continue with -p {number} -o {copied.offset}")

    def report(self, topic: str, new_topic: str | None, as_json: bool) -> None:
        if as_json:
            rows: list[dict[str, Any]] = [
                {
                    "partition": number,
                    "from": copied.start,
                    "to": copied.offset,
                    "messages": copied.messages,
                    "payload_bytes": copied.payload_bytes,
                }
                for number, copied in self._copied.items()
            ]
            write_json({"topic": topic, "to": new_topic, "partitions": rows})
            return
        messages = sum(each.messages for each in self._copied.values())
        size = format_bytes(sum(each.payload_bytes for each in self._copied.values()))
        where = new_topic or "where they were published"
        write_line(f"{messages} messages, {size}, copied from {topic} to {where}")


def _batches(pace: Pace, payloads: list[bytes]) -> Iterator[list[bytes]]:
    for piece in pace.pieces(payloads):
        for first in range(0, len(piece), _BATCH_MESSAGES):
            yield list(piece[first : first + _BATCH_MESSAGES])
