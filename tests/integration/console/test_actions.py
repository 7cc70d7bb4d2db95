"""What the console changes, as forms ask for it: on a real broker, without HTTP."""

import logging
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from markupsafe import escape
from storage_logs import write_segment

from hermes.client import FetchRequest, ProducerConfig, SimpleConsumer
from hermes.client import Producer as HermesProducer
from hermes.config.topic import TOPIC_SETTINGS
from hermes.console import Access
from hermes.console.page_request import PageResponse
from hermes.coordination.group_state import read_members, store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import encode_message_set
from hermes.security import Operation
from hermes.testing import RunningKafka, running_kafka

from .test_pages import Pages, body, text

_DEADLINE_SECONDS = 120.0
HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}\r\nX: y"


#: Topics whose names Kafka doesn't allow, and how they are shown.
ODD_NAMES = {
    " two  words!": " two  words!",
    "pic\u202egpj\"'%22<script>": "pic\\u202egpj\"'%22<script>",
    "-x; $(id)": "-x; $(id)",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    log_dir = tmp_path_factory.mktemp("actions") / "logs"
    for name in ODD_NAMES:  # as older versions have let them be made
        write_segment(log_dir, encode_message_set([b"old"]), partition=f"{name}-0")
    settings = {
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
        "retention_time": "12d",
    }
    with running_kafka(settings=settings, log_dir=log_dir) as running:
        yield running


class Acting(Pages):
    """A console that may change something, for somebody who may do some of it."""

    def __init__(self, broker: Any, *allowed: Operation, **settings: Any) -> None:
        super().__init__(broker, **settings)
        self.may_act = True
        if allowed:
            rights = lambda principal, operation, resource: operation in allowed  # noqa: E731
            self.console._access = self.access = Access(None, rights=rights)


@pytest.fixture
def pages(kafka: RunningKafka) -> Iterator[Acting]:
    made = Acting(kafka)
    yield made
    made.console.close()


def settings_of(kafka: RunningKafka, topic: str) -> dict[str, tuple[str, str]]:
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        return {each.name: (each.value, each.origin) for each in consumer.describe_settings(topic)}


def test_a_topic_is_created_with_settings_and_who_did_it_is_logged(
    kafka: RunningKafka, pages: Acting, caplog: pytest.LogCaptureFixture
) -> None:
    form = pages("create-topic")
    assert 'placeholder="12d"' in form
    assert 'value="kafka" checked' in form
    caplog.set_level(logging.INFO, "hermes.console")
    fields = {"name": " made ", "format": "kafka", "partitions": "3", "retention_time": "7d"}
    answer = pages.post("create-topic", **fields)
    assert (answer.status, answer.headers["Location"]) == (303, "/topics/made?done=created")
    page = text(pages("topics", "made", done="created"))
    assert "The topic was created." in page
    assert "Partitions 3" in page
    assert settings_of(kafka, "made")["retention_time"] == ("7d", "altered")
    assert "console: 'anonymous' created topic 'made' with format: 'kafka', " in caplog.text


def test_a_topic_of_the_old_format_is_created(kafka: RunningKafka, pages: Acting) -> None:
    assert pages.post("create-topic", name="old", format="0.7").status == 303
    assert settings_of(kafka, "old")["format"][0] == "0.7"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "A topic needs a name."),
        ({"name": "x" * 2000}, "It is longer than 1,000 characters."),
        ({"name": "a/b"}, 'id="name-error"'),
        ({"name": HOSTILE}, 'id="name-error"'),
        ({"format": ""}, "Choose one of the formats."),
        ({"format": HOSTILE}, "Choose one of the formats."),
        ({"partitions": "0"}, "Expected a whole number from 1 to 10,000."),
        ({"partitions": "-1"}, "Expected a whole number from 1 to 10,000."),
        ({"partitions": "9" * 30}, "Expected a whole number from 1 to 10,000."),
        ({"retention_time": "12 parsecs"}, 'id="setting-retention_time-error"'),
        ({"retention_time": HOSTILE}, 'id="setting-retention_time-error"'),
        ({"flush_messages": "0"}, 'id="setting-flush_messages-error"'),
        ({"cleanup_policy": "shred"}, 'id="setting-cleanup_policy-error"'),
        ({"format": "0.7", "cleanup_policy": "compact"}, 'id="setting-cleanup_policy-error"'),
        ({"segment_bytes": "9" * 5000}, "It is longer than 4,096 characters."),
    ],
)
def test_what_is_wrong_is_said_beside_the_field_and_what_was_typed_is_kept(
    kafka: RunningKafka, pages: Acting, fields: dict[str, str], said: str
) -> None:
    given = {"name": "refused", "format": "kafka", "max_batch_bytes": "77777", **fields}
    answer = pages.post("create-topic", **given)
    page = body(answer)
    assert answer.status == 400
    assert said in page
    assert 'aria-invalid="true"' in page or "formats" in said
    assert 'value="77777"' in page
    assert "<img" not in page
    for name, value in fields.items():
        assert name == "format" or name == "cleanup_policy" or value in unescape(page)
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        assert "refused" not in [each.topic for each in consumer.metadata().topics]


def test_a_topic_that_exists_is_not_created_again(pages: Acting) -> None:
    assert pages.post("create-topic", name="twice", format="kafka").status == 303
    answer = pages.post("create-topic", name="twice", format="kafka")
    assert answer.status == 400
    assert 'id="name-error"' in body(answer)


def test_only_what_was_changed_is_altered_and_reset(kafka: RunningKafka, pages: Acting) -> None:
    pages.post("create-topic", name="altered", format="kafka", flush_messages="5")
    page = pages("topics", "altered", "settings")
    assert "Reset flush_messages" in page
    assert "Reset retention_time" not in page
    assert TOPIC_SETTINGS["segment_bytes"].doc in text(page)
    shown = {"retention_time": "12d", "was-retention_time": "12d"}
    given = {"segment_age": "3d", "was-segment_age": "7d", **shown}
    answer = pages.post("topics", "altered", "settings", **given)
    assert answer.headers["Location"] == "/topics/altered/settings?done=altered"
    now = settings_of(kafka, "altered")
    assert now["segment_age"] == ("3d", "altered")
    assert now["retention_time"] == ("12d", "broker.yaml")
    assert "default: 7d" in text(pages("topics", "altered", "settings", done="altered"))
    assert pages.post("topics", "altered", "settings", reset="segment_age").status == 303
    assert settings_of(kafka, "altered")["segment_age"] == ("7d", "default")
    for fields in ({"reset": HOSTILE}, shown, {"segment_age": "", "was-segment_age": "7d"}):
        refused = pages.post("topics", "altered", "settings", **fields)
        assert refused.status == 400
        assert "<img" not in body(refused)
    wrong = pages.post("topics", "altered", "settings", **{"segment_age": "soon", **shown})
    assert 'id="setting-segment_age-error"' in body(wrong)
    assert 'value="soon"' in body(wrong)


def test_partitions_are_added_and_never_taken_away(pages: Acting) -> None:
    for name, form in (("growing", "kafka"), ("growing-old", "0.7")):
        pages.post("create-topic", name=name, format=form, partitions="2")
        for count in ("", "1", "2", "x", "10001"):
            refused = pages.post("topics", name, "settings", grow="1", partitions=count)
            assert (refused.status, 'id="partitions-error"' in body(refused)) == (400, True), count
        grown = pages.post("topics", name, "settings", grow="1", partitions="5")
        assert grown.headers["Location"] == f"/topics/{name}/settings?done=grown"
        assert "Partitions 5" in text(pages("topics", name))


def test_a_topic_is_deleted_by_who_types_its_name(pages: Acting) -> None:
    pages.post("create-topic", name="doomed", format="kafka")
    for typed in ("", "Doomed", "doomed "):
        refused = pages.post("topics", "doomed", "settings", delete="1", confirm=typed)
        assert (refused.status, 'id="confirm-error"' in body(refused)) == (400, True)
    deleted = pages.post("topics", "doomed", "settings", delete="1", confirm="doomed")
    assert deleted.headers["Location"] == "/topics?done=deleted"
    assert "doomed" not in text(pages("topics", done="deleted"))
    assert pages.post("topics", "doomed", "settings", delete="1", confirm="doomed").status == 404


@pytest.mark.parametrize(("name", "shown"), ODD_NAMES.items())
def test_topics_whose_names_kafka_refuses_are_filled_shown_and_deleted(
    kafka: RunningKafka, pages: Acting, name: str, shown: str
) -> None:
    path = f"/topics/{quote(name, safe='')}"
    sent = pages.post("topics", name, "produce", value="text", payload="hello")
    assert sent.headers["Location"].startswith(f"{path}/produce?")
    for last in ((), ("messages",), ("live",), ("produce",), ("settings",)):
        page = pages("topics", name, *last)
        assert "<script>" not in page
        assert "\u202e" not in page
        assert f"<h1>{escape(shown)}</h1>" in page
        assert f'href="{path}/produce"' in page
    assert " -- " in text(pages("topics", name))
    saved = pages.answer("topics", name, "download").headers["Content-Disposition"]
    assert saved.count('"') == 2
    exact = unquote(saved.partition("filename*=UTF-8''")[2]) or saved.split('"')[1]
    assert exact == f"{name}.ndjson"
    deleted = pages.post("topics", name, "settings", delete="1", confirm=shown)
    assert deleted.headers["Location"] == "/topics?done=deleted"


def test_nobody_is_given_a_form_without_the_setting(pages: Acting) -> None:
    pages.post("create-topic", name="fixed", format="kafka")
    pages.may_act = False
    for path in (("create-topic",), ("topics", "fixed", "settings")):
        assert pages.answer(*path).status == 403
        assert "console_actions" in body(pages.answer(*path))
    assert "Settings</a>" not in pages("topics", "fixed")
    assert "create-topic" not in pages("topics")
    assert pages.post("create-topic", name="more", format="kafka").status == 403


def test_who_may_do_what_is_decided_as_over_the_wire(kafka: RunningKafka, pages: Acting) -> None:
    pages.post("create-topic", name="guarded", format="kafka")
    see = Operation.DESCRIBE
    for allowed, created, altered, deleted in (
        ((see,), 400, 403, 403),
        ((see, Operation.CREATE), 303, 403, 403),
        ((see, Operation.ADMIN), 400, 303, 403),
        ((see, Operation.DELETE), 400, 403, 303),
        ((Operation.CREATE, Operation.ADMIN, Operation.DELETE), 303, 404, 404),
    ):
        somebody = Acting(kafka, *allowed)
        path, name = ("topics", "guarded", "settings"), f"new-{created}-{altered}"
        made = somebody.post("create-topic", name=name, format="kafka")
        assert made.status == created, allowed
        if created == 400 and see in allowed:
            assert "may not create topic" in body(made)
        change = {"flush_messages": "9", "was-flush_messages": "1"}
        assert somebody.post(*path, **change).status == altered, allowed
        assert somebody.post(*path, grow="1", partitions="7").status == altered, allowed
        assert somebody.post(*path, delete="1", confirm="guarded").status == deleted, allowed
        somebody.console.close()


# -- groups -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def orders(kafka: RunningKafka) -> dict[tuple[str, int], int]:
    """A topic of each format with messages; groups of both kinds have read some of it."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        consumer.create_topic("orders", {"format": "kafka", "partitions": 2})
    for number in range(20):
        producer.produce("orders", b"%d" % number, partition=number % 2)
    assert producer.flush(_DEADLINE_SECONDS) == 0
    return {("orders", 0): 4, ("orders", 1): 7}


def commit(kafka: RunningKafka, group: str, places: dict[tuple[str, int], int]) -> None:
    consumer = consumer_of(kafka, group)
    offsets = [TopicPartition(*place, offset) for place, offset in places.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def consumer_of(kafka: RunningKafka, group: str, **settings: object) -> Consumer:
    given = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    return Consumer({**given, "enable.auto.commit": False, **settings})


def committed(kafka: RunningKafka, group: str) -> dict[int, int]:
    consumer = consumer_of(kafka, group)
    wanted = [TopicPartition("orders", number) for number in range(2)]
    found = {each.partition: each.offset for each in consumer.committed(wanted, _DEADLINE_SECONDS)}
    consumer.close()
    return found


def own_group(kafka: RunningKafka, name: str) -> Session:
    session = Session(str(kafka.zookeeper_connect))
    session.start()
    store_offsets(session, name, {("orders", BrokerPartition(0, 0)): 4})
    return session


def changes_of(page: str) -> str:
    return unescape(page.partition('name="changes" value="')[2].partition('"')[0])


@pytest.mark.parametrize(
    ("to", "value", "then"),
    [
        ("earliest", "", {0: 0, 1: 0}),
        ("latest", "", {0: 10, 1: 10}),
        ("offset", "9", {0: 9, 1: 9}),
        ("shift", "-3", {0: 1, 1: 4}),
        ("time", "1970-01-02", {0: 0, 1: 0}),
        ("time", "2100-01-01", {0: 10, 1: 10}),
    ],
)
def test_a_group_of_kafkas_clients_is_moved_after_a_preview(
    kafka: RunningKafka, pages: Acting, orders: Any, to: str, value: str, then: dict[int, int]
) -> None:
    group = f"moved-{to}-{value[:4]}"
    commit(kafka, group, orders)
    page = pages("groups", group, "reset", kind="kafka", to=to, value=value)
    assert "Nothing is changed yet" in text(page)
    assert committed(kafka, group) == {0: 4, 1: 7}
    path = ("groups", group, "reset")
    answer = pages.post(*path, kind="kafka", changes=changes_of(page))
    assert answer.headers["Location"] == f"/groups/{group}?kind=kafka&done=moved"
    assert committed(kafka, group) == then
    assert pages.post(*path, kind="kafka", changes=changes_of(page)).status == 502 or then == {
        0: 4,
        1: 7,
    }


def test_what_is_wrong_with_a_place_is_said_beside_the_field(
    kafka: RunningKafka, pages: Acting, orders: Any
) -> None:
    commit(kafka, "<b>misplaced", orders)
    for to, value, said in (
        ("time", "soon", 'id="value-error"'),
        ("time", HOSTILE, 'id="value-error"'),
        ("offset", "-1", 'id="value-error"'),
        ("offset", "9" * 30, 'id="value-error"'),
        ("shift", "5", 'id="value-error"'),
        ("", "", 'id="to-error"'),
        ("offset", "11", "outside the log"),
    ):
        answer = pages.answer("groups", "<b>misplaced", "reset", kind="kafka", to=to, value=value)
        assert answer.status == 400, to
        assert said in body(answer)
        assert unescape(body(answer)).count(value.strip()[:20]) > 0
        assert "<b>" not in body(answer)
        assert "<img" not in body(answer)
    for changes in (
        *("", "{}", "[]", "1", "[[1]]", "[" * 10_000, HOSTILE),
        *('[["orders","0",4,-1]]', '[[[],"0",4,1]]', '[["orders","0",{},1]]'),
        '[["orders","0",4,9223372036854775808]]',
    ):
        answer = pages.post("groups", "<b>misplaced", "reset", changes=changes)
        assert answer.status == 400, changes
    assert committed(kafka, "<b>misplaced") == {0: 4, 1: 7}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_refused_with_what_to_do(
    kafka: RunningKafka, pages: Acting, orders: Any, protocol: str
) -> None:
    group = f"busy-{protocol}"
    commit(kafka, group, orders)
    member = consumer_of(kafka, group, **{"group.protocol": protocol})
    try:
        member.subscribe(["orders"])
        while not member.assignment():
            member.poll(0.1)
        preview = pages.answer("groups", group, "reset", kind="kafka", to="latest")
        assert preview.status == 400
        assert "stop them first" in text(body(preview))
        changes = '[["orders", "0", 4, 0]]'
        assert pages.post("groups", group, "reset", changes=changes).status == 400
        refused = pages.post("groups", group, "delete", confirm=group)
        assert (refused.status, "stop them first" in body(refused)) == (400, True)
    finally:
        member.close()
    assert committed(kafka, group) == {0: 4, 1: 7}


def test_groups_of_both_kinds_are_deleted_by_who_types_their_name(
    kafka: RunningKafka, pages: Acting, orders: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.console")
    commit(kafka, "both", orders)
    session = own_group(kafka, "both")
    try:
        assert pages.answer("groups", "both", "delete").status == 400  # which of the two?
        for kind in ("kafka", "hermes"):
            page = pages("groups", "both", kind=kind)
            assert f"/groups/both/delete?kind={kind}" in page
            delete = {"kind": kind}
            assert "gone for good" in text(pages("groups", "both", "delete", **delete))
            wrong = pages.post("groups", "both", "delete", confirm="Both", **delete)
            assert 'id="confirm-error"' in body(wrong)
            right = pages.post("groups", "both", "delete", confirm="both", **delete)
            assert right.headers["Location"] == "/groups?done=group-deleted"
        assert pages.answer("groups", "both").status == 404
        assert read_members(session, "both") == []
    finally:
        session.stop()
    assert caplog.text.count("deleted group 'both'") == 2


def test_only_who_may_use_a_group_changes_it(
    kafka: RunningKafka, pages: Acting, orders: Any
) -> None:
    commit(kafka, "theirs", orders)
    somebody = Acting(kafka, Operation.DESCRIBE, Operation.CONSUME)
    for path in ("reset", "delete"):
        assert somebody.answer("groups", "theirs", path, to="latest").status == 403
        assert somebody.post("groups", "theirs", path, confirm="theirs", changes="[]").status == 403
        assert Acting(kafka, Operation.GROUP).answer("groups", "theirs", path).status == 404
    pages.may_act = False
    assert pages.answer("groups", "theirs", "delete").status == 403
    assert committed(kafka, "theirs") == {0: 4, 1: 7}
    somebody.console.close()


# -- messages -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def targets(kafka: RunningKafka) -> None:
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        consumer.create_topic("target", {"format": "kafka", "partitions": 3})
        consumer.create_topic("old-target", {"format": "'0.7'", "partitions": 2})


@pytest.fixture
def produce(pages: Acting, targets: None) -> Any:
    def send(topic: str = "target", **form: str) -> PageResponse:
        return pages.post("topics", topic, "produce", **{"value": "text", **form})

    return send


def stored(kafka: RunningKafka, answer: PageResponse) -> Any:
    """The message that an answer says it has stored."""
    assert answer.status == 303, body(answer)
    path, _, query = answer.headers["Location"].partition("?")
    given = dict(parse_qsl(query))
    number, offset = int(given["sent"].partition("-")[2]), int(given["offset"])
    with SimpleConsumer(kafka.host, kafka.port) as consumer:
        fetched = consumer.fetch(FetchRequest(path.split("/")[2], number, offset, 1 << 20))
        return next(iter(fetched))[0], number


def test_a_message_is_stored_with_its_key_and_headers(
    kafka: RunningKafka, pages: Acting, produce: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.console")
    form = {"key": "k 1", "headers": "source: console\r\n\r\nx: a: b ", "partition": "0-2"}
    answer = produce(payload="first\r\nsecond ✓", **form)
    message, number = stored(kafka, answer)
    assert (message.payload, message.key, number) == ("first\nsecond ✓".encode(), b"k 1", 2)
    assert message.headers == (("source", b"console"), ("x", b"a: b"))
    shown = pages("topics", "target", "produce", sent="0-2", offset=0)
    assert "Stored in partition 2 at offset 0. Show the message" in text(shown)
    assert "partition=0-2&amp;offset=0" in shown
    assert "produced a message of 16 bytes to topic 'target', partition 0-2" in caplog.text


def test_a_key_chooses_the_partition_that_producers_choose(
    kafka: RunningKafka, produce: Any
) -> None:
    config = ProducerConfig(broker_list=f"0:{kafka.host}:{kafka.port}", acks="flushed")
    with HermesProducer(config) as producer:
        for key in ("a", "b", "c", "d"):
            number = producer.send("target", b"x", key=key).result().partition
            assert stored(kafka, produce(payload="y", key=key))[1] == number


def test_a_tombstone_and_an_empty_payload_differ(kafka: RunningKafka, produce: Any) -> None:
    gone, _ = stored(kafka, produce(value="tombstone", key="k", payload="ignored"))
    empty, _ = stored(kafka, produce(key="k"))
    assert (gone.payload, empty.payload) == (None, b"")


def test_json_is_checked_and_stored_as_it_is(kafka: RunningKafka, produce: Any) -> None:
    message, _ = stored(kafka, produce(value="json", payload='{"a":  [1, "<b>"]}'))
    assert message.payload == b'{"a":  [1, "<b>"]}'
    for wrong in ("", "{", "NaN", '{"a": Infinity}', "[" * 9_000, "<img src=x>", "1 2"):
        answer = produce(value="json", payload=wrong)
        assert (answer.status, 'id="payload-error"' in body(answer)) == (400, True), wrong
        assert wrong in unescape(body(answer))
        assert "<img" not in body(answer)


def test_topics_of_the_old_format_keep_payloads_only(
    kafka: RunningKafka, pages: Acting, produce: Any
) -> None:
    page = pages("topics", "old-target", "produce")
    assert 'name="key"' not in page
    assert 'value="tombstone"' not in page
    message, number = stored(kafka, produce("old-target", payload="bytes", partition="0-1"))
    assert (message.payload, number) == (b"bytes", 1)
    stored(kafka, produce("old-target", value="json", payload="{}"))
    for form, field in (
        ({"key": "k"}, "key"),
        ({"headers": "a: b"}, "headers"),
        ({"value": "tombstone"}, "value"),
    ):
        refused = produce("old-target", payload="x", **form)
        assert (refused.status, "0.7" in body(refused)) == (400, True), field


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"payload": "x" * 20_001}, "payload"),
        ({"payload": "✓" * 7_000}, "payload"),
        ({"value": "hex"}, "value"),
        ({"value": "avro"}, "value"),  # there is no registry
        ({"value": HOSTILE}, "value"),
        ({"partition": "0-3"}, "partition"),
        ({"partition": HOSTILE}, "partition"),
        ({"headers": "no colon"}, "headers"),
        ({"headers": ": nameless"}, "headers"),
        ({"headers": "a: b\n" * 33}, "headers"),
        ({"headers": HOSTILE.replace(":", ".")}, "headers"),
        ({"key": "k" * 1_001}, "key"),
        ({"version": "0"}, "version"),
    ],
)
def test_what_is_wrong_with_a_message_is_said_beside_the_field(
    produce: Any, form: dict[str, str], field: str
) -> None:
    answer = produce(**{"payload": "kept <img>", **form})
    page = body(answer)
    assert answer.status == 400
    assert f'id="{field}-error"' in page or field == "version"
    assert "<img" not in page
    assert "payload" in form or "kept <img>" in unescape(page)


def test_only_who_may_produce_does(kafka: RunningKafka, pages: Acting, targets: None) -> None:
    path = ("topics", "target", "produce")
    for allowed, status in (
        ((Operation.DESCRIBE, Operation.CONSUME), 403),
        ((Operation.PRODUCE,), 404),
        ((Operation.DESCRIBE, Operation.PRODUCE), 303),
    ):
        somebody = Acting(kafka, *allowed)
        assert somebody.post(*path, value="text", payload="x").status == status
        assert somebody.answer(*path).status == (200 if status == 303 else status)
        if status == 303:
            shown = text(somebody("topics", "target", "produce", sent="0-0", offset=0))
            assert "at offset 0" in shown
            assert "Show the message" not in shown  # for which it takes more
        somebody.console.close()
    pages.may_act = False
    assert pages.answer(*path).status == 403
    assert pages.post(*path, value="text", payload="x").status == 403
    assert "Produce</a>" not in pages("topics", "target")
    assert pages.answer("topics", "nothing", "produce").status == 403
