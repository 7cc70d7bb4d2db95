"""What transactional clients did to the logs of a topic, held against what Kafka promises.

These are the checks of Jepsen's workload for Kafka, and two of a group's offsets. Times are of
the machine's monotonic clock, in ns, and so comparable among processes. Each client makes one
transaction after the other: it sends and polls within it, and every value is sent once only.

What Kafka doesn't promise isn't looked for: transactions that are under way at the same time may
stand between each other's messages, and so each before the other in different logs (a cycle of
writes, G0, or with these a G1c).
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Literal, NamedTuple

__all__ = ["Assigned", "History", "Message", "Outcome", "Polled", "Sent", "Step", "Transaction"]

Outcome = Literal["committed", "aborted", "unknown"]


class Message(NamedTuple):
    """What a poll returned."""

    partition: int
    offset: int
    value: str


class Sent(NamedTuple):
    """A message that was sent; its offset is None where no answer came."""

    partition: int
    value: str
    offset: int | None


class Polled(NamedTuple):
    """What one poll returned, in that order."""

    messages: Sequence[Message]


class Assigned(NamedTuple):
    """Partitions that the client is to read from some other position than it had come to."""

    partitions: Iterable[int]


Step = Sent | Polled | Assigned


@dataclass(eq=False)
class Transaction:
    """What one client did between the begin and the end of a transaction.

    Attributes:
        process: whose; a client that has begun anew is another one. One that doesn't commit reads
            from where it was before.
        begin, end: when it began, and when its outcome was known.
        group: whose offsets it commits, of what it has polled; None for none.
    """

    process: str
    outcome: Outcome
    begin: int
    end: int
    steps: Sequence[Step]
    group: str | None = None

    @property
    def polled(self) -> Iterator[Message]:
        """All that it polled."""
        for step in self.steps:
            if isinstance(step, Polled):
                yield from step.messages

    @property
    def sent(self) -> Iterator[Sent]:
        """All that it sent."""
        return (step for step in self.steps if isinstance(step, Sent))

    def __str__(self) -> str:
        return f"{self.process}@{self.begin}"


@dataclass
class History:
    """All transactions, and what a reader of what was committed found in each log in the end."""

    transactions: Sequence[Transaction]
    final: Sequence[Message]

    def findings(self) -> dict[str, list[str]]:
        """What must not be, by kind; kinds without any are left out."""
        kinds = {
            "two values at an offset": self._two_values,
            "duplicate": self._duplicates,
            "lost": self._lost,
            "sent by nobody": self._unsent,
            "aborted read": self._aborted_reads,
            "own read": self._own_reads,
            "cycle": self._cycles,
            "read from the future": self._futures,
            "inverted send": self._inverted_sends,
            "inverted poll": self._inverted_polls,
            "skipped poll": self._skipped_polls,
            "consumed twice": self._consumed_twice,
            "never consumed": self._never_consumed,
        }
        found = {kind: list(find()) for kind, find in kinds.items()}
        return {kind: each for kind, each in found.items() if each}

    # -- what is known ----------------------------------------------------------------------------

    @cached_property
    def _writers(self) -> Mapping[tuple[int, str], Transaction]:
        return {
            (sent.partition, sent.value): each for each in self.transactions for sent in each.sent
        }

    @cached_property
    def _seen(self) -> Sequence[Message]:
        """All that was ever polled: whatever became of the transaction, it was committed."""
        polled = [message for each in self.transactions for message in each.polled]
        return [*polled, *self.final]

    @cached_property
    def _committed(self) -> Sequence[Transaction]:
        """Those that are: of which nobody knows are where anything that they sent was seen."""
        seen = {(each.partition, each.value) for each in self._seen}
        return [
            each
            for each in self.transactions
            if each.outcome == "committed"
            or (
                each.outcome == "unknown" and any((x.partition, x.value) in seen for x in each.sent)
            )
        ]

    @cached_property
    def _logs(self) -> Mapping[int, Mapping[int, set[str]]]:
        """By partition and offset what is there."""
        logs: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for each in self._seen:
            logs[each.partition][each.offset].add(each.value)
        for transaction in self._committed:
            for sent in transaction.sent:
                if sent.offset is not None:
                    logs[sent.partition][sent.offset].add(sent.value)
        return logs

    @cached_property
    def _places(self) -> Mapping[tuple[int, str], list[int]]:
        """At which offsets of its partition a value is."""
        places = defaultdict(list)
        for partition, log in self._logs.items():
            for offset in sorted(log):
                for value in log[offset]:
                    places[partition, value].append(offset)
        return places

    @cached_property
    def _offsets(self) -> Mapping[int, list[int]]:
        return {partition: sorted(log) for partition, log in self._logs.items()}

    # -- what the logs hold -----------------------------------------------------------------------

    def _two_values(self) -> Iterator[str]:
        for partition, log in self._logs.items():
            for offset, values in log.items():
                if len(values) > 1:
                    yield f"{partition}/{offset}: {sorted(values)}"

    def _duplicates(self) -> Iterator[str]:
        for (partition, value), offsets in self._places.items():
            if len(offsets) > 1:
                yield f"{value} of {partition} at {offsets}"

    def _lost(self) -> Iterator[str]:
        """What was committed, or goes with what was, and isn't there in the end."""
        there = {(each.partition, each.value) for each in self.final}
        for each in self._committed:
            for sent in each.sent:
                if (sent.partition, sent.value) not in there:
                    yield f"{sent} of {each}, {each.outcome}"

    def _unsent(self) -> Iterator[str]:
        for each in set(self._seen):
            if (each.partition, each.value) not in self._writers:
                yield f"{each}"

    # -- what transactions read of each other -----------------------------------------------------

    def _aborted_reads(self) -> Iterator[str]:
        for each in set(self._seen):
            writer = self._writers.get((each.partition, each.value))
            if writer is not None and writer.outcome == "aborted":
                yield f"{each} of {writer}"

    def _own_reads(self) -> Iterator[str]:
        for each in self.transactions:
            for message in each.polled:
                if self._writers.get((message.partition, message.value)) is each:
                    yield f"{message} by {each}"

    @cached_property
    def _read_from(self) -> Mapping[Transaction, set[Transaction]]:
        """By reader the others that it has read from."""
        found: dict[Transaction, set[Transaction]] = {each: set() for each in self.transactions}
        for each, writers in found.items():
            for message in each.polled:
                writer = self._writers.get((message.partition, message.value))
                if writer is not None and writer is not each:
                    writers.add(writer)
        return found

    def _cycles(self) -> Iterator[str]:
        """Who read from whom can't go round (G1c, of reads)."""
        try:
            TopologicalSorter(self._read_from).prepare()
        except CycleError as error:
            yield " <- ".join(str(each) for each in error.args[1])

    def _futures(self) -> Iterator[str]:
        """A transaction counts from some moment between its begin and its end.

        Whoever reads from it counts later. Where no such moments are to be had, what was read and
        the time go round (G1c with time).
        """
        try:
            order = list(TopologicalSorter(self._read_from).static_order())
        except CycleError:
            return
        earliest: dict[Transaction, int] = {}
        for each in order:
            read = (earliest[writer] for writer in self._read_from[each])
            earliest[each] = max([each.begin, *read])
            if earliest[each] > _end(each):
                yield f"{each}, over at {each.end}, read what isn't before {earliest[each]}"

    # -- order ------------------------------------------------------------------------------------

    def _inverted_sends(self) -> Iterator[str]:
        """What is sent after something else was committed stands behind it, whoever sent it."""
        for transaction in self._committed:
            offsets = defaultdict(list)
            for sent in transaction.sent:
                offsets[sent.partition] += self._places.get((sent.partition, sent.value), [])[:1]
            for partition, each in offsets.items():
                if each != sorted(each):
                    yield f"{transaction} sent to {partition}: {each}"
        for partition, log in self._logs.items():
            latest: Transaction | None = None
            for offset in self._offsets[partition]:
                for value in log[offset]:
                    writer = self._writers.get((partition, value))
                    if writer is None:
                        continue
                    if latest is not None and _end(writer) < latest.begin:
                        yield f"{value} of {writer} at {partition}/{offset}, behind {latest}"
                    if latest is None or latest.begin < writer.begin:
                        latest = writer

    def _inverted_polls(self) -> Iterator[str]:
        for transaction, message, position in self._polls:
            if message.offset <= position:
                yield f"{transaction} polled {message} after offset {position}"

    def _skipped_polls(self) -> Iterator[str]:
        for transaction, message, position in self._polls:
            known = self._offsets[message.partition]
            skipped = known[bisect_right(known, position) : bisect_left(known, message.offset)]
            if skipped:
                yield f"{transaction} polled {message} after offset {position}, not {skipped}"

    @cached_property
    def _polls(self) -> Sequence[tuple[Transaction, Message, int]]:
        """What was polled, each with the offset from which its process was to read on.

        That is within a transaction and from one to the next; the first of an assignment has none.
        """
        found = []
        positions: dict[str, dict[int, int]] = defaultdict(dict)
        for transaction in sorted(self.transactions, key=lambda each: each.begin):
            before = positions[transaction.process]
            now = dict(before)
            for step in transaction.steps:
                if isinstance(step, Assigned):
                    for partition in step.partitions:
                        now.pop(partition, None)
                        before.pop(partition, None)
                elif isinstance(step, Polled):
                    for message in step.messages:
                        if message.partition in now:
                            found.append((transaction, message, now[message.partition]))
                        now[message.partition] = message.offset
            if transaction.outcome == "committed":
                positions[transaction.process] = now
        return found

    # -- a group's offsets ------------------------------------------------------------------------

    @cached_property
    def _consumed(self) -> Mapping[tuple[str, int], Counter[int]]:
        """By group and partition which offsets were consumed by what is committed, how often."""
        counts: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
        for transaction in self._committed:
            if transaction.group is not None:
                for each in transaction.polled:
                    counts[transaction.group, each.partition][each.offset] += 1
        return counts

    def _consumed_twice(self) -> Iterator[str]:
        for (group, partition), counts in self._consumed.items():
            for offset, count in counts.items():
                if count > 1:
                    yield f"{partition}/{offset}, {count} times by {group}"

    def _never_consumed(self) -> Iterator[str]:
        """A group reads each log from its start, and leaves out nothing."""
        perhaps = {
            (transaction.group, each.partition, each.offset)
            for transaction in self.transactions
            if transaction.outcome == "unknown"
            for each in transaction.polled
        }
        for (group, partition), counts in self._consumed.items():
            last = max(counts)
            for offset in self._offsets[partition]:
                is_known = offset in counts or (group, partition, offset) in perhaps
                if offset < last and not is_known:
                    yield f"{partition}/{offset} by {group}"


def _end(transaction: Transaction) -> float:
    return math.inf if transaction.outcome == "unknown" else transaction.end
