"""What a live tail reads on from, poll by poll; the broker is the test's own."""

from typing import Self
from urllib.parse import urlencode

from twisted.web.http import HTTPChannel

from hermes.config.addresses import BrokerAddress
from hermes.console.forms import format_places
from hermes.console.live_tail import TailUpdate, known_ends, tail
from hermes.console.messages import FoundMessage
from hermes.console.page_request import PageRequest
from hermes.console.payload_display import ValueReader
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.protocol import NOBODY, FetchRequest
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch

BROKER = {0: BrokerAddress("broker", 9092)}


class Broker:
    """Has ten records a partition."""

    def consumer(self, _: BrokerAddress) -> Self:
        return self

    def supports(self, _: int) -> bool:
        return False

    def fetch(self, request: FetchRequest) -> RecordSet:
        records = [Record(each, 0, None, b"%d" % each) for each in range(10)]
        return RecordSet(encode_batch(records), request.offset)


def topic(end: int) -> TopicView:
    row = PartitionRow(0, 0, 0, end, 1000, counts_messages=True, leader=0)
    return TopicView("t", (row,), BROKER, counts_messages=True)


def leaderless() -> TopicView:
    row = PartitionRow(0, 0, None, None, 0, counts_messages=True, leader=NOBODY)
    return TopicView("t", (row,), BROKER, counts_messages=True)


def poll(view: TopicView, places: dict[str, int]) -> TailUpdate:
    return tail(Broker(), view, list(view.partitions), places, ValueReader("auto"))  # type: ignore[arg-type]


def shown(update: TailUpdate) -> list[bytes]:
    return [each.payload for each in update.rows if isinstance(each, FoundMessage)]


def test_what_is_new_is_shown_once() -> None:
    first = poll(topic(7), {"0-0": 5})
    assert (shown(first), first.places) == ([b"6", b"5"], {"0-0": 7})
    assert shown(poll(topic(7), first.places)) == []


def test_while_nobody_leads_a_partition_its_place_stays() -> None:
    between = poll(leaderless(), {"0-0": 7})
    assert between.places == {"0-0": 7}
    after = poll(topic(8), between.places)
    assert (shown(after), after.skipped_bytes) == ([b"7"], 0)


def test_while_a_broker_of_several_is_away_the_places_of_its_partitions_stay() -> None:
    view = topic(7)
    assert poll(view, {"0-0": 7, "1-0": 3}).places == {"0-0": 7, "1-0": 3}


def test_a_page_opened_while_nobody_leads_a_partition_shows_nothing_old_later() -> None:
    assert known_ends(leaderless(), list(leaderless().partitions)) == {}
    assert shown(poll(topic(8), {})) == []


def test_a_partition_that_was_never_written_to_is_shown_from_its_first_message() -> None:
    row = PartitionRow(0, 0, None, None, 0, counts_messages=True)
    empty = TopicView("t", (row,), BROKER, counts_messages=True)
    assert shown(poll(topic(1), poll(empty, {}).places)) == [b"0"]


def test_the_places_of_very_many_partitions_fit_into_an_address() -> None:
    rows = [PartitionRow(0, each, 0, 1 << 40, 1 << 40) for each in range(1000)]
    view = TopicView("t", tuple(rows), BROKER)
    at = format_places(poll(view, {}).places)
    request = PageRequest("GET", (), {"at": at})
    assert request.text("at") == at
    assert len(urlencode({"at": at})) < HTTPChannel.totalHeadersSize
