"""Groups of Kafka's clients in the console, as their coordinators keep them in coordination."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from offset_nodes import offset_node_path

from hermes.client import SyncProducer
from hermes.coordination.group_state import store_offsets
from hermes.coordination.kafka_groups import group_node_path
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.testing import RunningKafka, running_kafka

from .conftest import HOSTILE_GROUP
from .test_pages import Pages, text

_DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    settings = {
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
        "group_initial_rebalance_delay": "0s",
        "topics": {"old": {"format": "0.7"}},
    }
    with running_kafka(topics={"orders": 2}, settings=settings) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        for number in range(20):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        assert producer.flush(_DEADLINE_SECONDS) == 0
        with SyncProducer(running.host, running.port) as old:
            messages = encode_message_set([b"of 2012"])
            old.send_acknowledged([ProduceRequest("old", 0, messages)], Acks.FLUSHED)
        yield running


@pytest.fixture
def pages(kafka: RunningKafka) -> Iterator[Pages]:
    made = Pages(kafka)
    yield made
    made.console.close()


@pytest.fixture
def session(kafka: RunningKafka) -> Iterator[Session]:
    made = Session(str(kafka.zookeeper_connect))
    made.start()
    yield made
    made.stop()


def consumer_of(kafka: RunningKafka, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "till",
            "log_level": 0,
            **settings,
        }
    )


def commit(kafka: RunningKafka, group: str, *places: TopicPartition) -> None:
    consumer = consumer_of(kafka, group)
    try:
        consumer.commit(offsets=list(places), asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("protocol", "said"),
    [("classic", "A group of Kafka’s clients."), ("consumer", "with group.protocol=consumer")],  # noqa: RUF001
)
def test_members_owners_and_lag(
    kafka: RunningKafka, pages: Pages, protocol: str, said: str
) -> None:
    group = f"tills-{protocol}"
    consumer = consumer_of(kafka, group, **{"group.protocol": protocol, "group.instance.id": "a"})
    try:
        consumer.subscribe(["orders"])
        came = 0
        while came < 20:
            came += sum(not each.error() for each in consumer.consume(20, 1.0))
        consumer.commit(
            offsets=[TopicPartition("orders", 0, 10), TopicPartition("orders", 1, 7)],
            asynchronous=False,
        )
        page = text(pages("groups", group, kind="kafka"))
        assert said in page
        assert "Members 1 Partitions 2 Lag 3 messages" in page
        assert "orders 0 10 10 0 messages a" in page
        assert "orders 1 7 10 3 messages a" in page
        assert "a orders (till " in page
        assert f"{group} Kafka’s active 1" in text(pages("groups"))  # noqa: RUF001
        shown = ""
        while group not in shown:  # groups are looked at a few at a time
            shown = text(pages("topics", "orders"))
        assert f"{group} 2 3 messages" in shown
    finally:
        consumer.close()


def test_offsets_of_topics_of_0_7_are_bytes(kafka: RunningKafka, pages: Pages) -> None:
    commit(kafka, "readers", TopicPartition("old", 0, 0))
    page = text(pages("groups", "readers", kind="kafka"))
    assert "old 0 0 17 17 B nobody" in page
    assert "Nobody: the group is inactive" in page


def test_a_bare_name_finds_the_group_whatever_kind_it_is_of(
    kafka: RunningKafka, pages: Pages, session: Session
) -> None:
    commit(kafka, "only-kafkas", TopicPartition("orders", 1, 4))
    store_offsets(session, "only-hermes", {("old", BrokerPartition(0, 0)): 17})
    assert "A group of Kafka’s clients" in text(pages("groups", "only-kafkas"))  # noqa: RUF001
    assert "old 0 17" in text(pages("groups", "only-hermes"))
    assert pages.answer("groups", "only-hermes", kind="kafka").status == 404
    assert pages.answer("groups", "neither").status == 404


def test_a_name_of_both_kinds_is_two_groups(
    kafka: RunningKafka, pages: Pages, session: Session
) -> None:
    store_offsets(session, "both", {("old", BrokerPartition(0, 0)): 17})
    commit(kafka, "both", TopicPartition("orders", 1, 4))
    listed = pages("groups", q="both")
    links = ('href="/groups/both?kind=hermes"', 'href="/groups/both?kind=kafka"')
    choice = pages("groups", "both")
    assert "Two groups have this name" in text(choice)
    for link in links:
        assert link in listed
        assert link in choice
    assert "orders" not in text(pages("groups", "both", kind="hermes"))
    pages.may_act = True
    page = pages("groups", "both", kind="kafka")
    assert "orders 1 4 10 6 messages" in text(page)
    assert 'action="/groups/both/reset"' in page
    assert 'name="kind" value="kafka"' in page


def test_offsets_of_a_topic_that_had_the_name_before_are_not_shown(
    kafka: RunningKafka, pages: Pages
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("passing", 1)])["passing"].result(_DEADLINE_SECONDS)
    commit(kafka, "late", TopicPartition("passing", 0, 0))
    assert "passing 0 0 0 0 messages" in text(pages("groups", "late", kind="kafka"))
    admin.delete_topics(["passing"])["passing"].result(_DEADLINE_SECONDS)
    admin.create_topics([NewTopic("passing", 1)])["passing"].result(_DEADLINE_SECONDS)
    again = Pages(kafka)
    try:
        answer = again.answer("groups", "late", kind="kafka")
        assert answer.status == 404 or "passing" not in text(again("groups", "late", kind="kafka"))
    finally:
        again.console.close()


def test_hostile_names_and_nodes_are_text(
    kafka: RunningKafka, pages: Pages, session: Session
) -> None:
    session.put(offset_node_path("torn", "orders", 0), b'{"offset": "<b>"}')
    session.put(f"{group_node_path('torn')}/members", b"<b>")
    session.put(group_node_path("torn"), b"{}")
    commit(kafka, HOSTILE_GROUP, TopicPartition("orders", 0, 1))
    page = pages("groups", HOSTILE_GROUP, kind="kafka")
    assert "<img" not in page
    assert "orders 0 1 10 9 messages" in text(page)
    torn = pages("groups", "torn", kind="kafka")
    assert "<b>" not in torn
    assert "members can't be understood" in text(torn)
    assert "orders:0 can't be understood" in text(torn)
    assert pages.answer("groups", "nobody's", kind="kafka").status == 404
