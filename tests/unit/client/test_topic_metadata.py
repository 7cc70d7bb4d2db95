"""What a producer knows of topics from ZooKeeper, and when it looks again."""

from collections.abc import Callable
from typing import Any

import pytest
from zope.interface import implementer

from hermes.client import Producer, ProducerConfig, topic_metadata
from hermes.client.topic_metadata import Brokers, Target, TopicPartitions, ZooKeeperMetadata
from hermes.interfaces import ICallbackHandler, IPayloadObserver


class NoSession:
    """A session in which nothing is read."""

    session_id = 1
    stopped = 0

    def __init__(self, *_: Any, on_change: Callable[[], None], **__: Any) -> None:
        self.on_change = on_change

    def start(self, *_: Any) -> None:
        """There is nothing to connect to."""

    def stop(self) -> None:
        type(self).stopped += 1


@implementer(ICallbackHandler, IPayloadObserver)
class Unwilling:
    """An observer that prevents its producer."""

    def __getattr__(self, hook: str) -> Callable[..., Any]:
        return lambda *_: None

    def on_open(self, _: ProducerConfig) -> None:
        raise ZeroDivisionError


def test_a_producer_that_its_observer_prevents_leaves_no_session_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_metadata, "Session", NoSession)
    monkeypatch.setattr(NoSession, "stopped", 0)
    config = ProducerConfig(
        zookeeper_connect="any", producer_type="async", callback_handler=Unwilling()
    )
    with pytest.raises(ZeroDivisionError):
        Producer(config)
    assert NoSession.stopped == 1


class Late(dict[str, TopicPartitions]):
    """Something changes in the very moment before the first topic is kept."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed: Callable[[], None] | None = changed

    def __setitem__(self, topic: str, known: TopicPartitions) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed()
        super().__setitem__(topic, known)


def test_a_change_in_the_moment_of_keeping_what_was_read_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_metadata, "Session", NoSession)
    metadata = ZooKeeperMetadata(
        "any",
        Brokers(None),  # type: ignore[arg-type]
        session_timeout_seconds=1.0,
        connection_timeout_seconds=1.0,
    )
    counts = iter([1, 2])

    def read(_: str) -> TopicPartitions:
        return TopicPartitions(tuple(Target(0, n) for n in range(next(counts))), is_counted=True)

    monkeypatch.setattr(metadata, "_read", read)
    metadata._known = Late(metadata._session.on_change)  # type: ignore[attr-defined]
    assert len(metadata.partitions("clicks").targets) == 1
    assert len(metadata.partitions("clicks").targets) == 2
