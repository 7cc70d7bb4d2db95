"""Mirrors of topics of Kafka's format, from and to Hermes and a real Kafka 4."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from kafka_4 import KafkaProcess
from kafka_mirror_kills import KafkaMirrorKills
from kafka_mirrors import (
    Copied,
    arrived,
    create,
    ends,
    eventually,
    kafka_mirror,
    produce,
    records,
)
from mirror_clusters import Clusters

from hermes import Consumer as HermesConsumer
from hermes import ConsumerConfig, ProducerConfig, SimpleConsumer
from hermes import Producer as HermesProducer
from hermes.cli import program
from hermes.client import FetchRequest
from hermes.client.kafka_groups import KafkaGroups
from hermes.client.places import PartitionPlace
from hermes.config.mirror import parse_mirror_config
from hermes.coordination.group_state import read_group, read_stored_offsets, store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.mirror import Mirror, group_carrier, in_step
from hermes.mirror.loop_guard import LoopGuard
from hermes.security import PLAIN
from hermes.testing import RunningBroker, running_broker

SETTINGS = {"kafka_listen": "tcp:0:interface=127.0.0.1", "coordination": "embedded"}
PARTITIONS = 3
SET = AlterConfigOpType.SET


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    process.start()
    yield process.address
    process.kill()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def hermes(stack: ExitStack, **settings: Any) -> RunningBroker:
    return stack.enter_context(running_broker(settings=SETTINGS | settings))


def address_of(broker: RunningBroker) -> str:
    assert broker.bootstrap_servers is not None
    return broker.bootstrap_servers


def sent(count: int, first: int = 0) -> list[tuple[int, Copied]]:
    """Records of all kinds, with the partition of each."""
    now_ms = time.time_ns() // 1_000_000
    return [
        (
            number % PARTITIONS,
            Copied(
                b"key %d" % (number % 50) if number % 4 else None,
                b"value %d" % number if number % 7 else None,
                (("number", b"%d" % number), ("nothing", None)) if number % 5 == 0 else (),
                now_ms - number,
            ),
        )
        for number in range(first, first + count)
    ]


def by_partition(*some: list[tuple[int, Copied]]) -> list[list[Copied]]:
    return [
        [record for one in some for place, record in one if place == partition]
        for partition in range(PARTITIONS)
    ]


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        "zstd",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("gzip", "snappy", "lz4")),
    ],
)
@pytest.mark.parametrize("way", ["from Kafka", "to Kafka", "within Hermes"])
def test_records_arrive_as_they_are(stack: ExitStack, kafka: str, way: str, codec: str) -> None:
    broker = hermes(stack)
    own = address_of(broker)
    source = kafka if way == "from Kafka" else own
    if way == "within Hermes":
        there = hermes(stack)
        target, place = address_of(there), {"brokers": f"{there.host}:{there.port}"}
    elif way == "from Kafka":
        target, place = own, {"zookeeper": broker.zookeeper_connect}
    else:
        target, place = kafka, {"kafka": kafka}
    topic = f"{way.replace(' ', '-')}-{codec}"
    create(source, topic, PARTITIONS)
    first, second = sent(600), sent(300, 600)
    produce(source, topic, first, **{"compression.type": codec})
    mirror = kafka_mirror(stack, source, place, whitelist=topic, name=topic)
    eventually(arrived(target, topic, by_partition(first)), f"{mirror.errors}")
    produce(source, topic, second, **{"compression.type": codec, "enable.idempotence": True})
    eventually(arrived(target, topic, by_partition(first, second)), f"{mirror.errors}")
    assert not mirror.errors
    mirror.stop()  # what it sent is counted then, too
    assert sum(each.messages for each in mirror.figures()) == 900


def test_a_mirror_goes_on_where_it_was(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)
    create(kafka, "going-on", PARTITIONS)
    first, second = sent(300), sent(300, 300)
    produce(kafka, "going-on", first)
    chosen = {"whitelist": "going-on", "name": "going-on"}
    mirror = kafka_mirror(stack, kafka, {"zookeeper": broker.zookeeper_connect}, **chosen)
    eventually(arrived(address_of(broker), "going-on", by_partition(first)))
    mirror.stop()
    host, port = kafka.split(":")
    groups = KafkaGroups([(host, int(port))], 30.0, PLAIN)
    stack.callback(groups.close)
    group = "hermes-mirror-going-on"
    stored = {("going-on", each): 100 for each in range(PARTITIONS)}
    assert groups.offsets(group) == stored
    beginning = PartitionPlace("offset", 0)
    groups.store(group, {p: groups.reset(p, at, beginning) for p, at in stored.items()})
    produce(kafka, "going-on", second)
    kafka_mirror(stack, kafka, {"zookeeper": broker.zookeeper_connect}, **chosen)
    eventually(arrived(address_of(broker), "going-on", by_partition(first, second)))
    eventually(lambda: set(groups.offsets(group).values()) == {200})


def test_a_group_moves_to_the_target_and_goes_on(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)
    own = address_of(broker)
    create(kafka, "orders", PARTITIONS)
    create(own, "near.orders", PARTITIONS)
    produce(own, "near.orders", sent(30))  # which moves everything that is mirrored
    some = sent(900)
    produce(kafka, "orders", some)
    before = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    read = [0, 123, 300]
    before.commit(
        offsets=[TopicPartition("orders", n, at) for n, at in enumerate(read)], asynchronous=False
    )
    before.close()
    guard = guard_of(lambda: mirror)
    mirror = kafka_mirror(
        stack,
        kafka,
        {"zookeeper": broker.zookeeper_connect},
        guard,
        whitelist="orders",
        topics={"prefix": "near."},
    )
    eventually(lambda: ends(own, "near.orders", PARTITIONS) == [310] * PARTITIONS)
    place = ["--from-kafka", kafka, "-Z", broker.zookeeper_connect, "-g", "billing"]
    shown = CliRunner().invoke(program, ["mirror", "translate", *place, "--commit"])
    assert shown.exit_code == 0, shown.stderr
    after = Consumer({"bootstrap.servers": own, "group.id": "billing"})
    stack.callback(after.close)
    places = [TopicPartition("near.orders", each) for each in range(PARTITIONS)]
    found = [each.offset for each in after.committed(places, timeout=60)]
    assert found == [10 + at for at in read]
    origins = ["mirror", "origins", "-Z", broker.zookeeper_connect]
    assert "near.orders" in CliRunner().invoke(program, origins).stdout
    forgotten = CliRunner().invoke(program, [*origins, "--forget", "near.orders"])
    assert forgotten.exit_code == 0, forgotten.stderr


def test_a_group_of_hermes_clients_goes_on_in_the_target(stack: ExitStack) -> None:
    # Its offsets are those of partitions by their names, a mirror's those of Kafka's numbers.
    source, target = hermes(stack, broker_id=3), hermes(stack, broker_id=5)
    assert source.zookeeper_connect
    assert target.zookeeper_connect
    create(address_of(source), "debts", PARTITIONS)
    produce(address_of(source), "debts", sent(900))
    create(address_of(target), "far.debts", PARTITIONS)
    produce(address_of(target), "far.debts", sent(30))  # it has other offsets
    guard = guard_of(lambda: mirror)
    mirror = kafka_mirror(
        stack,
        address_of(source),
        {"zookeeper": target.zookeeper_connect},
        guard,
        whitelist="debts",
        topics={"prefix": "far."},
    )
    eventually(lambda: ends(address_of(target), "far.debts", PARTITIONS) == [310] * PARTITIONS)
    session = Session(source.zookeeper_connect)
    session.start()
    read = {("debts", BrokerPartition(3, n)): 100 * n for n in range(PARTITIONS)}
    store_offsets(session, "billing", read)
    session.stop()
    place = ["--from", source.zookeeper_connect, "-Z", target.zookeeper_connect, "-g", "billing"]
    shown = CliRunner().invoke(program, ["mirror", "translate", *place, "--commit"])
    assert shown.exit_code == 0, shown.stderr
    session = Session(target.zookeeper_connect)
    session.start()
    stored = read_group(session, "billing").offsets
    session.stop()
    expected = {("far.debts", BrokerPartition(5, n)): 10 + 100 * n for n in range(PARTITIONS)}
    assert stored == expected


def test_groups_are_carried_over_while_they_read_at_the_source(
    stack: ExitStack, kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_carrier, "_EVERY_SECONDS", 0.1)
    broker = hermes(stack)
    own = address_of(broker)
    create(kafka, "bills", PARTITIONS)
    produce(kafka, "bills", sent(900))
    chosen = {"whitelist": "bills", "name": "bills", "topics": {"prefix": "far."}}
    mirror = kafka_mirror(
        stack, kafka, {"zookeeper": broker.zookeeper_connect}, groups="payer.*", **chosen
    )
    eventually(lambda: ends(own, "far.bills", PARTITIONS) == [300] * PARTITIONS)

    def commit(address: str, group: str, topic: str, offsets: list[int]) -> None:
        reader = Consumer({"bootstrap.servers": address, "group.id": group})
        places = [TopicPartition(topic, n, at) for n, at in enumerate(offsets)]
        reader.commit(offsets=places, asynchronous=False)
        reader.close()

    def there(group: str) -> list[int]:
        reader = Consumer({"bootstrap.servers": own, "group.id": group})
        places = [TopicPartition("far.bills", each) for each in range(PARTITIONS)]
        try:
            return [each.offset for each in reader.committed(places, timeout=60)]
        finally:
            reader.close()

    commit(kafka, "others", "bills", [1, 2, 3])
    commit(kafka, "payers", "bills", [10, 20, 300])
    eventually(lambda: there("payers") == [10, 20, 300], f"{mirror.errors}")
    commit(kafka, "payers", "bills", [200, 5, 300])  # one goes back
    eventually(lambda: there("payers") == [200, 20, 300], f"{mirror.errors}")
    here = Consumer({"bootstrap.servers": own, "group.id": "payers"})
    stack.callback(here.close)
    here.subscribe(["far.bills"])
    eventually(lambda: here.poll(0.1) is not None and here.assignment())
    commit(kafka, "payers", "bills", [299, 299, 300])
    commit(kafka, "payers2", "bills", [7, 8, 9])  # carried in a later round than that
    eventually(lambda: there("payers2") == [7, 8, 9], f"{mirror.errors}")
    assert there("payers")[0] < 299
    assert there("others") == [OFFSET_INVALID] * PARTITIONS
    assert not mirror.errors


@pytest.mark.parametrize("form", ["kafka", "0.7"])
def test_groups_of_hermes_clients_are_carried_over_too(
    stack: ExitStack, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_carrier, "_EVERY_SECONDS", 0.1)
    source, target = (hermes(stack, broker_id=each, format=form) for each in (3, 5))
    assert source.zookeeper_connect
    assert target.zookeeper_connect
    sessions = Session(source.zookeeper_connect), Session(target.zookeeper_connect)
    for session in sessions:
        session.start()
        stack.callback(session.stop)
    there, here = sessions
    bounds = fill(source, "tips", 90), fill(target, "far.tips", 10)
    place = {"zookeeper": source.zookeeper_connect}
    if form == "kafka":
        place["kafka"] = [address_of(source)]
    values = {
        "name": "m",
        "sources": [{"name": "east", **place}],
        "target": {"zookeeper": target.zookeeper_connect},
        "whitelist": "tips",
        "topics": {"prefix": "far."},
        "groups": "payer.*,hermes-.*",
    }
    mirror = Mirror(parse_mirror_config(values))
    mirror.start()
    stack.callback(mirror.stop)

    def commit(group: str, read: int) -> None:
        store_offsets(there, group, {("tips", BrokerPartition(3, 0)): bounds[0][read]})

    def carried(group: str) -> int | None:
        """How many messages of the source the group has read, as the target has it."""
        offsets = read_stored_offsets(here, 5, 100)[0]
        stored = offsets.get((group, "far.tips", 0))
        return None if stored is None else bounds[0].index(stored - bounds[1][-1])

    for group in ("others", "hermes-audit-east"):
        commit(group, 7)
    for read, expected in ((20, 20), (60, 60), (5, 60), (90, 90)):
        commit("payers", read)
        eventually(lambda expected=expected: carried("payers") == expected, f"{mirror.errors}")
    # Where it reads by itself it knows better.
    config = ConsumerConfig(group="payers2", zookeeper_connect=target.zookeeper_connect)
    with HermesConsumer(config) as reader:
        (stream,) = reader.create_message_streams({"far.tips": 1})["far.tips"]
        for _ in range(12):  # of which two are mirrored
            next(stream)
        reader.commit_offsets()
        commit("payers2", 30)
        commit("payers3", 8)  # carried in the same round, or a later one
        eventually(lambda: carried("payers3") == 8, f"{mirror.errors}")
        assert carried("payers2") == 2
    eventually(lambda: carried("payers2") == 30, f"{mirror.errors}")
    assert carried("others") is None
    assert carried("hermes-audit-east") is None
    assert not mirror.errors


def fill(broker: RunningBroker, topic: str, count: int) -> list[int]:
    """Send messages of several sizes; where each begins, and where the last one ends."""
    settings = ProducerConfig(broker_list=broker.address)
    with HermesProducer(settings) as producer:
        for number in range(count):
            producer.send(topic, b"x" * (number % 17))
    with SimpleConsumer(broker.address) as consumer:
        found = [0]
        while len(found) <= count:
            fetched = consumer.fetch(FetchRequest(topic, 0, found[-1], 1 << 20))
            found += [next_offset for _, next_offset in fetched]
    return found


@pytest.mark.parametrize("way", ["from Kafka", "to Kafka"])
def test_topics_are_kept_in_step(
    stack: ExitStack, kafka: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_step, "_LOOK_SECONDS", 0.0)
    broker = hermes(stack)
    source, target, place = kafka, address_of(broker), {"zookeeper": broker.zookeeper_connect}
    if way == "to Kafka":
        source, target, place = target, source, {"kafka": kafka}
    topic = f"in-step-{way.replace(' ', '-')}"
    create(source, topic, 2, retention_ms="86400000")
    admin = AdminClient({"bootstrap.servers": source})
    there = AdminClient({"bootstrap.servers": target})

    def setting(name: str) -> str | None:
        resource = ConfigResource("topic", topic)
        try:
            return there.describe_configs([resource])[resource].result(60)[name].value
        except KafkaException:
            return None

    both = ["partitions", "settings"]
    mirror = kafka_mirror(stack, source, place, whitelist=topic, name=topic, in_step=both)
    eventually(lambda: setting("retention.ms") == "86400000", f"{mirror.errors}")
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(60)
    change = ConfigEntry("max.message.bytes", "70000", incremental_operation=SET)
    changed = ConfigResource("topic", topic, incremental_configs=[change])
    admin.incremental_alter_configs([changed])[changed].result(60)
    some = sent(300)
    produce(source, topic, some)
    eventually(arrived(target, topic, by_partition(some)), f"{mirror.errors}")
    eventually(lambda: setting("max.message.bytes") == "70000", f"{mirror.errors}")
    assert not mirror.errors


@pytest.mark.parametrize("way", ["from Kafka", "to Kafka"])
def test_a_topic_that_is_made_anew_is_mirrored_from_its_start(
    stack: ExitStack, kafka: str, way: str
) -> None:
    broker = hermes(stack)
    source, target, place = kafka, address_of(broker), {"zookeeper": broker.zookeeper_connect}
    if way == "to Kafka":
        source, target, place = target, source, {"kafka": kafka}
    topic = f"anew-{way.replace(' ', '-')}"
    first, second = sent(30), sent(300)
    create(source, topic, PARTITIONS)
    produce(source, topic, first)
    mirror = kafka_mirror(stack, source, place, whitelist=topic, name=topic)
    eventually(arrived(target, topic, by_partition(first)), f"{mirror.errors}")
    admin = AdminClient({"bootstrap.servers": source})
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: created_again(source, topic))
    produce(source, topic, second)
    eventually(arrived(target, topic, by_partition(first, second)), f"{mirror.errors}")


def created_again(address: str, topic: str) -> bool:
    try:
        create(address, topic, PARTITIONS)
    except KafkaException:  # it is still being deleted
        return False
    return True


def test_only_what_was_committed_of_transactions_arrives(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)
    create(kafka, "paid", 1)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "payer"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for part in b"abc":
            producer.produce("paid", b"%d%c" % (number, part))
        if number % 3 == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    mirror = kafka_mirror(stack, kafka, {"zookeeper": broker.zookeeper_connect}, whitelist="paid")
    expected = [b"%d%c" % (n, part) for n in range(6) if n % 3 != 1 for part in b"abc"]
    own = address_of(broker)
    eventually(lambda: ends(own, "paid", 1) == [len(expected)], "not everything arrived")
    assert [each.value for each in records(own, "paid", 1)[0]] == expected
    eventually(lambda: [each.position for each in mirror.figures()] == [24])


def test_the_brokers_timestamps_stay(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)
    create(kafka, "stamped", 1, message_timestamp_type="LogAppendTime")
    produce(kafka, "stamped", [(0, Copied(b"k", b"v", (), 1_000))])
    place = {"zookeeper": broker.zookeeper_connect}
    kafka_mirror(stack, kafka, place, whitelist="stamped", name="stamped")
    eventually(lambda: ends(address_of(broker), "stamped", 1) == [1])
    there = records(address_of(broker), "stamped", 1)
    assert there == records(kafka, "stamped", 1)
    assert there[0][0].timestamp_ms > 1_000_000


def test_what_is_too_large_for_the_target_waits(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)
    create(address_of(broker), "large", 1)
    create(kafka, "large", 1, max_message_bytes="2000")
    now_ms = time.time_ns() // 1_000_000
    some = [
        (0, Copied(None, bytes([65 + n]) * size, (), now_ms))
        for n, size in enumerate((9, 5_000, 9))
    ]
    for each in some:
        produce(address_of(broker), "large", [each])
    mirror = kafka_mirror(
        stack, address_of(broker), {"kafka": kafka}, whitelist="large", name="large"
    )
    told = f"{kafka}: topic 'large' partition 0: MESSAGE_TOO_LARGE"
    eventually(lambda: [each.error for each in mirror.figures()] == [told])
    assert ends(kafka, "large", 1) == [1]


def guard_of(mirror: Callable[[], Mirror]) -> Callable[..., LoopGuard]:
    """What makes a mirror's guards, once there is the mirror."""
    return lambda _, source_id, *kept: LoopGuard("m", source_id, mirror().target_id, *kept)


def test_the_way_back_is_refused(stack: ExitStack, kafka: str) -> None:
    broker = hermes(stack)

    def guarded(source: str, place: Any, topics: dict[str, Any]) -> Mirror:
        guard = guard_of(lambda: mirror)
        mirror = kafka_mirror(stack, source, place, guard, whitelist="there,back", topics=topics)
        return mirror

    create(kafka, "there", 1)
    produce(kafka, "there", [(0, Copied(None, b"once", (), time.time_ns() // 1_000_000))])
    guarded(kafka, {"zookeeper": broker.zookeeper_connect}, {"map": {"there": "back"}})
    eventually(lambda: ends(address_of(broker), "back", 1) == [1])
    back = guarded(address_of(broker), {"kafka": kafka}, {"map": {"back": "there"}})
    eventually(lambda: "it would make a loop: back comes from" in str(back.refused))
    assert ends(kafka, "there", 1) == [1]


def test_a_cluster_is_not_mirrored_into_itself(stack: ExitStack) -> None:
    broker = hermes(stack)

    create(address_of(broker), "round", 1)
    mirror = kafka_mirror(
        stack, address_of(broker), {"zookeeper": broker.zookeeper_connect}, guard_of(lambda: mirror)
    )
    eventually(lambda: "the source is the target itself" in str(mirror.refused))


@pytest.mark.parametrize(
    ("source", "target"),
    [("kafka", "hermes"), pytest.param("hermes", "kafka", marks=pytest.mark.nightly)],
)
def test_everything_arrives_in_order_through_kills(
    clusters: Clusters, source: str, target: str
) -> None:
    run = KafkaMirrorKills(clusters, source, target, messages=60_000, kills=3, seed=1)
    run.run()
    assert set(run.deeds) == {"source", "target", "mirror"}
