"""Which partition a message that was typed goes to."""

import socket
from collections.abc import Iterator

import pytest

from hermes.console.cluster import Address, Cluster
from hermes.console.forms import FieldError
from hermes.console.producing import TEXT, MessageSender, Typed
from hermes.console.recent import Recent
from hermes.console.topics import PartitionRow, TopicView
from hermes.errors import BrokerNotReachedError


@pytest.fixture
def nobody() -> Iterator[Address]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield Address(*bound.getsockname())


def test_a_key_needs_all_brokers_and_a_chosen_partition_one(nobody: Address) -> None:
    rows = tuple(PartitionRow(0, number, 0, 0, 0) for number in range(2))
    errors = ("other:9092: no answer",)
    topic = TopicView("clicks", rows, {0: nobody}, errors, counts_messages=True)
    sender = MessageSender(Cluster(nobody, None), Recent(), None)
    with pytest.raises(FieldError, match="choose one") as refused:
        sender.send(topic, "", Typed(TEXT, "x", key="k"))
    assert refused.value.name == "partition"
    for partition, key in (("0-1", "k"), ("", "")):
        with pytest.raises(BrokerNotReachedError):  # it would be sent now
            sender.send(topic, partition, Typed(TEXT, "x", key=key))
