"""What groups have of topics of Kafka's format by what they committed, groups of any kind.

An offset says up to where a group has come in a log, and the tier that counts the log's messages
between which offsets those of each window are. What a group did with them only it could say: then
it counts them itself, and this isn't used.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from hermes.audit.events import UNSTAMPED, Committed, Tallies, add_tallies
from hermes.audit.log_tally import Hole, LogTally
from hermes.audit.publishing import Outbox
from hermes.coordination.group_state import read_stored_offsets
from hermes.coordination.kafka_group_state import read_committed
from hermes.coordination.kafka_topics import fits_in_a_path, parse_topic, topic_node_path
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.nodes import TreeSession
from hermes.errors import CoordinationError, InvalidNodeError

_log = logging.getLogger(__name__)

_MOST_OFFSETS: Final = 100_000
_KAFKA: Final = "kafka"

# Reading what groups have committed takes this part of the time at most.
_READING_SHARE: Final = 0.1


class GroupCommits:
    """How far a group has come in the logs of a topic.

    Attributes:
        of: the tier that counts the logs.
        logs: by log the offset that is committed.
        holes: what it can't get any more, or gets twice.
    """

    def __init__(self) -> None:
        self.of = ""
        self.logs: dict[str, int] = {}
        self.holes: set[Hole] = set()
        self._times: dict[str, int] = {}

    def add(self, time_ms: int, body: Committed) -> None:
        self.of = body.of
        for log, (offset, begin) in body.logs.items():
            if time_ms >= self._times.get(log, 0):
                self._times[log], self.logs[log] = time_ms, offset
            if offset < begin:
                self.holes.add(Hole(body.topic, log, offset, begin, "lost"))
        for log, (start, end) in body.set_back.items():
            self.holes.add(Hole(body.topic, log, start, end, "set back"))

    def passed(self, logs: Mapping[str, LogTally]) -> tuple[Tallies, set[int], set[int]]:
        """What it has of windows that it has passed.

        Returns: that; the windows that it hasn't passed in some log; those of which it has lost
        something.
        """
        found: Tallies = {}
        awaited: set[int] = set()
        unsure: set[int] = set()
        for name, log in logs.items():
            committed = self.logs.get(name, 0)
            lost = [each for each in self.holes if each.log == name and each.why == "lost"]
            for key, tally in log.tallies().items():
                if key == UNSTAMPED:
                    continue
                start, end = log.spans.get(key[0], (0, log.end))
                if committed >= end:
                    add_tallies(found, {key: tally})
                else:
                    awaited.add(key[0])
                if any(each.start < end and start < each.end for each in lost):
                    unsure.add(key[0])
        return found, awaited, unsure


class CountedLog(NamedTuple):
    """A log that is counted here: where it begins, and up to where it is counted."""

    topic: str
    name: str
    partition: BrokerPartition
    begin: int
    end: int


class CommitReporter:
    """Reports what groups have committed of the logs that a process counts. Threads may share it.

    Args:
        of: the tier that counts them.
        make_outbox: makes what sends the events of a tier.
    """

    def __init__(
        self, of: str, session: TreeSession, make_outbox: Callable[[str], Outbox], left_out: str
    ) -> None:
        self._of = of
        self._session = session
        self._make_outbox = make_outbox
        self._left_out = left_out
        self._lock = threading.Lock()
        self._outboxes: dict[str, Outbox] = {}
        self._reported: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        self._not_before = 0.0
        self._problem = ""

    def report(
        self, counted: Iterable[CountedLog], *, is_due: bool = False
    ) -> set[tuple[str, str]]:
        """Report what has changed, unless that took long, not long ago; with `is_due` always.

        Returns the logs, by topic and name, in which a group has not come to the counted end.
        """
        with self._lock:
            began = time.monotonic()
            if began < self._not_before and not is_due:
                return set()
            places = {(each.topic, *each.partition): each for each in counted}
            try:
                found = self._read(places)
            except CoordinationError as error:
                if str(error) != self._problem:  # once, not every few seconds
                    self._problem = str(error)
                    _log.warning("what groups have committed can't be read: %s", error)
                return set()
            self._problem = ""
            for (group, topic), logs in found.items():
                self._send(group, topic, logs)
            now = time.monotonic()
            self._not_before = now + (now - began) / _READING_SHARE
        return {
            (each.topic, each.name)
            for each in places.values()
            for (_, topic), logs in found.items()
            if topic == each.topic and logs.get(each.name, (each.end, 0))[0] < each.end
        }

    def _read(
        self, places: Mapping[tuple[str, int, int], CountedLog]
    ) -> dict[tuple[str, str], dict[str, tuple[int, int]]]:
        found: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        has_records = cache(self._has_records)
        for broker_id in sorted({broker_id for _, broker_id, _ in places}):
            for read in (read_committed, read_stored_offsets):
                offsets, is_all = read(self._session, broker_id, _MOST_OFFSETS)
                if not is_all:
                    _log.warning("only %d offsets of groups are read", _MOST_OFFSETS)
                for (group, topic, number), offset in offsets.items():
                    at = places.get((topic, broker_id, number))
                    if at is None or group.startswith(self._left_out) or not has_records(topic):
                        continue
                    found.setdefault((group, topic), {})[at.name] = offset, at.begin
        return found

    def _has_records(self, topic: str) -> bool:
        """Whether a topic has Kafka's format: in 0.7's, offsets don't tell windows."""
        path = topic_node_path(topic)
        try:
            node = self._session.get(path) if fits_in_a_path(topic) else None
            return node is not None and parse_topic(path, node.value).format == _KAFKA
        except InvalidNodeError:
            return False

    def _send(self, group: str, topic: str, logs: dict[str, tuple[int, int]]) -> None:
        before = self._reported.get((group, topic), {})
        if logs == before:
            return
        set_back = {
            name: (offset, before[name][0])
            for name, (offset, _) in logs.items()
            if name in before and offset < before[name][0]
        }
        if group not in self._outboxes:
            self._outboxes[group] = self._make_outbox(f"group:{group}")
        outbox = self._outboxes[group]
        if outbox.send([]) and outbox.send([Committed(topic, self._of, logs, set_back)]):
            self._reported[group, topic] = logs
