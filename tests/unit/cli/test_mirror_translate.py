"""`hermes mirror translate`, whose target's brokers are played."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.cli import mirror_translate
from hermes.cli.options import CommandConnection
from hermes.client.translation import SourceMap
from hermes.coordination.layout import BrokerNode, BrokerPartition
from hermes.protocol import NOBODY, SourceFlags, SourceSpan
from hermes.security import ClientSecurity

SOURCE = "cluster/clicks/0-0"


class PlayedPartitions:
    """Partition 0 of each broker has the source, byte for byte; served to who uses TLS."""

    def __init__(
        self, host: str, port: int, *, timeout_seconds: float, security: ClientSecurity
    ) -> None:
        assert (timeout_seconds, security) == (7, ClientSecurity(tls=True))

    def __enter__(self) -> "PlayedPartitions":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_supported(self) -> bool:
        return True

    def positions(self, topic: str) -> list[Any]:
        return [SimpleNamespace(partition=0, positions={SOURCE: 100})]

    def source_map(self, topic: str, partition: int) -> SourceMap:
        span = SourceSpan(0, SourceFlags.VERBATIM, 0, 100, 0, 100)
        return SourceMap(partition, 0, 100, {SOURCE: 100}, [(SOURCE, [span])])


@pytest.mark.parametrize(
    ("led", "names"),
    [
        ({(0, 0): 0}, [(0, 0), (1, 0)]),
        ({(0, 0): 0, (1, 0): 1}, []),
        ({(0, 0): 0, (1, 0): NOBODY}, [(0, 0), (1, 0)]),
    ],
    ids=["its only copy is away", "its broker has just gone", "nobody leads it"],
)
def test_a_partition_that_can_not_be_asked_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, led: Any, names: Any
) -> None:
    """It may have some of the source, too: a group that continues by its reset would miss that."""
    leaders = {BrokerPartition(*each): leader for each, leader in led.items()}
    played = {
        "read_topics": lambda session: ["clicks"],
        "read_brokers": lambda *_: {0: BrokerNode("a", "localhost", 1)},
        "leaders_of": lambda *_: leaders,
        "record_names": lambda *_: [BrokerPartition(*each) for each in names],
        "MirroredPartitions": PlayedPartitions,
    }
    for name, value in played.items():
        monkeypatch.setattr(mirror_translate, name, value, raising=False)
    connection = CommandConnection(ClientSecurity(tls=True), 7)
    cluster: Any = SimpleNamespace(session=None, connection=connection)
    reader = mirror_translate._GroupPositions("cluster", {SOURCE: 40}, {SOURCE: "clicks 0-0"})
    faults: list[str] = []
    found = dict(mirror_translate._translate_all(cluster, reader, {}, faults))
    assert {place: each.offset for place, each in found.items()} == {
        ("clicks", BrokerPartition(0, 0)): 40
    }
    assert faults == ["clicks 1-0: nobody who is there has it, so what it has isn't known"]
