"""Which partition a message that was typed goes to."""

import socket
from collections.abc import Iterator

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console import message_sender
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.forms import FieldError
from hermes.console.message_sender import TEXT, MessageSender, TypedMessage
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import BrokerNotReachedError
from hermes.protocol import NOBODY


class Counted:
    """A partitioner for which a key says which one it is, as producers count them."""

    def partition(self, _: str, key: str, count: int) -> int:
        return int(key)


@pytest.fixture
def nobody() -> Iterator[BrokerAddress]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield BrokerAddress(*bound.getsockname())


def test_a_key_needs_all_brokers_and_a_chosen_partition_one(nobody: BrokerAddress) -> None:
    rows = tuple(PartitionRow(0, number, 0, 0, 0) for number in range(2))
    errors = ("other:9092: no answer",)
    topic = TopicView("clicks", rows, {0: nobody}, errors, counts_messages=True)
    sender = MessageSender(ClusterClient(nobody, None), ReadCache(), None)
    with pytest.raises(FieldError, match="choose one") as refused:
        sender.send(topic, "", TypedMessage(TEXT, "x", key="k"))
    assert refused.value.name == "partition"
    for partition, key in (("0-1", "k"), ("", "")):
        with pytest.raises(BrokerNotReachedError):  # it would be sent now
            sender.send(topic, partition, TypedMessage(TEXT, "x", key=key))


def test_a_key_chooses_as_producers_do_where_partitions_have_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They count them by name, whoever leads them; a page shows them by Kafka's number."""
    monkeypatch.setattr(message_sender, "load_plugin", lambda *_: Counted())
    rows = tuple(
        PartitionRow(number % 2, number, 0, 0, 0, counts_messages=True, leader=1)
        for number in range(4)
    )
    topic = TopicView("clicks", rows, {}, counts_messages=True)
    chosen = [message_sender._chosen(topic, "", str(each)) for each in range(4)]
    assert [row.name for row in chosen] == ["0-0", "0-2", "1-1", "1-3"]


def test_without_a_key_a_partition_is_chosen_that_takes_messages(
    nobody: BrokerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_sender.random, "choice", lambda rows: rows[0])
    rows = (
        PartitionRow(0, 0, None, None, 0, counts_messages=True, leader=NOBODY),
        PartitionRow(1, 1, None, None, 0, counts_messages=True, leader=1),  # which is silent
        PartitionRow(0, 2, 0, 0, 0, counts_messages=True, leader=0, offline="no disk"),
        PartitionRow(0, 3, 0, 0, 0, counts_messages=True, leader=0),
    )
    topic = TopicView("clicks", rows, {0: nobody}, counts_messages=True)
    assert message_sender._chosen(topic, "", "").number == 3
