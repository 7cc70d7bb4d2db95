"""What the log says of changes that fail; nothing is connected."""

from types import SimpleNamespace

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console import CHANGES_LOGGER
from hermes.console.cache import ReadCache
from hermes.console.change_log import failures_logged
from hermes.console.forms import FieldError
from hermes.console.page_request import PageRequest
from hermes.console.topic_changes import TopicChanger
from hermes.console.topic_forms import _delete
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.errors import BrokerNotReachedError, HermesError

REQUEST = PageRequest("POST", (), form={"confirm": "clicks"}, client="192.0.2.1")


class Cluster:
    """The second of two brokers is gone."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def consumer(self, address: BrokerAddress) -> "Cluster":
        if address.port == 2:
            raise BrokerNotReachedError("no answer")
        return self

    def delete_topic(self, name: str) -> None:
        self.deleted.append(name)


def test_a_topic_that_is_deleted_on_some_brokers_only_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", CHANGES_LOGGER)
    cluster = Cluster()
    changer = TopicChanger(cluster, ReadCache())  # type: ignore[arg-type]
    addresses = {number: BrokerAddress("broker", number) for number in (1, 2)}
    rows = tuple(PartitionRow(number, 0, 0, 0, 0) for number in (1, 2))
    topic = TopicView("clicks", rows, addresses)
    with pytest.raises(HermesError):
        _delete(SimpleNamespace(topic_changes=changer), REQUEST, topic)  # type: ignore[arg-type]
    assert cluster.deleted == ["clicks"]
    (line,) = caplog.messages
    assert line == (
        "console: 'anonymous' at 192.0.2.1 failed (broker 2: no answer (it is deleted on broker 1 "
        "by now)), at least in part, to delete topic 'clicks'"
    )


def test_what_was_not_even_begun_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", CHANGES_LOGGER)
    with pytest.raises(FieldError), failures_logged(REQUEST, "produce a message"):
        raise FieldError("partition", "no")
    assert caplog.messages == []
