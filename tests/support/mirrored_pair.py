"""Two brokers with a coordination each, and mirrors from one to the other, for tests."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from hermes.client import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.config.mirror import parse_mirror_config
from hermes.coordination.group_state import read_group
from hermes.coordination.sessions import Session
from hermes.errors import UnknownTopicError
from hermes.mirror import Mirror, PartitionFigures
from hermes.testing import RunningBroker, running_broker

__all__ = ["MirroredPair", "eventually", "payloads", "totals"]

_SECONDS = 60.0


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until a condition holds, and return what it gave; fail after a minute."""
    deadline = time.monotonic() + _SECONDS
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, what or "it never happened"
        pause.wait(0.01)
    return found


def payloads(broker: RunningBroker, topic: str, partitions: int) -> list[list[bytes]]:
    """The payloads of each partition, in order; none of a topic that isn't there (yet)."""
    found: list[list[bytes]] = []
    with SimpleConsumer(broker.host, broker.port) as consumer:
        for number in range(partitions):
            found.append([])
            offset, before = 0, -1
            while offset != before:
                try:
                    fetched = consumer.fetch(FetchRequest(topic, number, offset, 1 << 20))
                except UnknownTopicError:  # nothing has come yet
                    break
                found[-1] += [message.payload for message, _ in fetched]
                before, offset = offset, fetched.next_offset
    return found


class MirroredPair:
    """A source and a target, each a broker with an embedded coordination.

    Args:
        stack: ends everything.
        source: settings of the source's broker.
        target: settings of the target's broker.
    """

    def __init__(self, stack: ExitStack, source: Any = None, target: Any = None) -> None:
        self._stack = stack
        common = {"coordination": "embedded", "num_partitions": 3, "flush_interval": "2ms"}
        self.source = stack.enter_context(running_broker(settings={**common, **(source or {})}))
        self.target = stack.enter_context(running_broker(settings={**common, **(target or {})}))

    def mirror(self, *, begin: bool = True, guard: Any = None, **settings: Any) -> Mirror:
        """Start a mirror; settings replace those of mirror.yaml."""
        values = {
            "name": "m",
            "sources": [{"name": "east", "zookeeper": self.source.zookeeper_connect}],
            "target": {"zookeeper": self.target.zookeeper_connect},
            **settings,
        }
        made = Mirror(parse_mirror_config(values), make_guard=guard)
        if begin:
            made.start()
            self._stack.callback(made.stop)
        return made

    def send(self, topic: str, messages: Sequence[bytes], **settings: Any) -> None:
        """Publish in the source, to one partition after the other."""
        config = ProducerConfig(
            broker_list=self.source.broker_list,
            acks="flushed",
            **{"partitioner": "round-robin", **settings},
        )
        with Producer(config) as producer:
            for start in range(0, len(messages), 50):
                producer.send(topic, list(messages[start : start + 50]))

    def arrived(self, topic: str, count: int, partitions: int = 3) -> list[list[bytes]]:
        """Wait until the target has so many messages; those of each partition."""

        def there() -> list[list[bytes]] | None:
            found = payloads(self.target, topic, partitions)
            return found if sum(map(len, found)) >= count else None

        found: list[list[bytes]] = eventually(there, f"{count} messages never arrived")
        return found

    def committed(self, group: str = "hermes-mirror-m") -> dict[str, int]:
        """The group's offsets in the source, by topic and partition."""
        session = self.session(self.source)
        offsets = read_group(session, group).offsets
        return {
            f"{topic} {partition}": offset
            for (topic, partition), offset in offsets.items()
            if isinstance(offset, int)
        }

    def session(self, broker: RunningBroker) -> Session:
        """A session with the coordination of a broker."""
        assert broker.zookeeper_connect is not None
        session = Session(broker.zookeeper_connect)
        session.start()
        self._stack.callback(session.stop)
        return session


def totals(mirrors: Sequence[Mirror], name: str) -> int:
    """A figure, over all partitions of some mirrors."""
    figures: list[PartitionFigures] = [each for one in mirrors for each in one.figures()]
    return sum(getattr(each, name) for each in figures)
