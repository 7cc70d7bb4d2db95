"""Which brokers a source without coordination is read from."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.client.groups.config import ConsumerConfig
from hermes.coordination.topic_filters import Whitelist
from hermes.mirror import sole_reader
from hermes.mirror.figures import Problems
from hermes.mirror.sole_reader import SoleReader
from hermes.mirror.source_stream import SourceStream
from hermes.mirror.whole_source import Reading

OLD, NEW = ("localhost", 1), ("localhost", 2)


class Fetcher:
    """In place of a thread that fetches."""

    def __init__(self, broker_id: int, address: tuple[str, int], *more: Any) -> None:
        self.address = address
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    def join(self) -> None: ...


class Consumer:
    """To a broker that is 7, wherever it is; another one is where it was."""

    moved = False

    def __init__(self, *address: Any, **settings: Any) -> None:
        self.address = address

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *exception: object) -> None: ...
    def supports(self, kind: int) -> bool:
        return True

    def metadata(self) -> Any:
        is_other = Consumer.moved and self.address == OLD
        return SimpleNamespace(broker_id=8 if is_other else 7, topics=[])


def test_a_broker_that_has_moved_is_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sole_reader, "SimpleConsumer", Consumer)
    context: Any = SimpleNamespace(has_room=lambda: None)
    stream: Any = SourceStream("east", context)
    config = ConsumerConfig(group="g", zookeeper_connect="none")
    problems = Problems(logging.getLogger("test"))
    kinds: tuple[Any, Any] = (None, Fetcher)
    reader: Any = SoleReader(
        "east", [OLD, NEW], Reading(Whitelist("clicks"), config, stream, *kinds, problems)
    )
    for _ in range(2):  # it has two addresses
        for address in (OLD, NEW):
            reader._look(address)
    former = reader._fetchers[7]
    assert (former.address, former.is_stopped) == (OLD, False)
    monkeypatch.setattr(Consumer, "moved", True)
    for address in (OLD, NEW):
        reader._look(address)
    assert {each: made.address for each, made in reader._fetchers.items()} == {7: NEW, 8: OLD}
    assert reader.addresses == {7: NEW, 8: OLD}
    assert former.is_stopped
