"""Topics whose names 0.7 takes and Kafka's rule does not: served, shown safely, deleted.

They stand in the data directory before the broker starts, as those of older versions do.
"""

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hermes_testkit import BrokerProcess
from mirror_clusters import eventually
from prometheus_client.parser import text_string_to_metric_families
from storage_logs import write_segment

from hermes.cli import program
from hermes.client import FetchRequest, Producer, ProducerConfig, SimpleConsumer, SyncProducer
from hermes.errors import SchemaRegistryError, UnknownTopicError
from hermes.protocol import ProduceRequest, encode_message_set
from hermes.schemas import RegistryClient

#: Which 0.7 registers consumers of, and which it has no JSON for.
REGISTERED = ["bad topic!", "a%20b", "<script>alert(1)<x>", "a&b;c=d?e#f", "tö\u202epic", " *:+,"]
NAMES = [*REGISTERED, "quo\"te'd", "back\\slash"]
#: What tests of the audit and of the registry leave on the broker, in whichever order they run.
INTERNAL = {"hermes-audit", "hermes-schemas"}
PAYLOADS = [b"one", b"two"]
LOOPBACK = "tcp:0:interface=127.0.0.1"
SECONDS = 60

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("odd names")
    for name in NAMES:
        write_segment(directory / "logs", encode_message_set(PAYLOADS), partition=f"{name}-0")
    listeners = dict.fromkeys(("coordination_listen", "http_listen", "kafka_listen"), LOOPBACK)
    settings = {"log_dir": str(directory / "logs"), "coordination": "embedded", **listeners}
    shown = {"metrics_per_partition": True, "console_actions": True}
    process = BrokerProcess(directory / "broker", {**settings, **shown})
    yield process
    assert process.stop() == 0


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    """Runs `hermes`, which must end well unless told otherwise."""

    def invoke(*arguments: object, code: int = 0, **options: object) -> Result:
        environment = {"HERMES_BROKER": f"127.0.0.1:{broker.port}"}
        result = CliRunner().invoke(program, list(map(str, arguments)), env=environment, **options)  # type: ignore[arg-type]
        assert result.exit_code == code, result.output
        return result

    return invoke


def place(broker: BrokerProcess, name: str) -> str:
    """Where the broker serves something else: `HTTP`, or `Kafka`."""
    found = re.search(rf"{name} on ([0-9.:]+)", broker.wait_for_line("is ready: Hermes"))
    assert found is not None
    return found[1]


def read(address: str) -> tuple[str, str]:
    """A page, and its type; of what is to be downloaded, which may be any bytes, no text."""
    with urlopen(address, timeout=SECONDS) as answer:
        assert answer.status == 200
        kind = answer.headers["Content-Type"]
        page = answer.read()
    return page.decode() if kind.startswith("text/") else "", kind


def test_they_are_listed_and_read_and_written(broker: BrokerProcess, run: Run) -> None:
    listed = [
        json.loads(line)["topic"]
        for line in run("topics", "list", "--json").stdout.split("\n")
        if line
    ]
    assert sorted({*listed} - INTERNAL) == sorted(NAMES)
    with (
        SyncProducer("127.0.0.1", broker.port) as producer,
        SimpleConsumer("127.0.0.1", broker.port) as consumer,
    ):
        for name in NAMES:
            (sent,) = producer.send_acknowledged(
                [ProduceRequest(name, 0, encode_message_set([b"3"]))]
            )
            assert sent.topic == name
            found = [each.payload for each, *_ in consumer.fetch(FetchRequest(name, 0, 0, 1000))]
            assert found[:2] == PAYLOADS
            consumer.alter_topic(name, {"retention_time": "9d"})
            shown = run("consume", "-t", name, "-o", "beginning", "-c", "2", "-q").stdout
            assert shown == "one\ntwo\n"
            described = json.loads(run("topics", "describe", "--json", "--", name).stdout)
            assert described["topic"] == name


def test_groups_keep_offsets_of_them(run: Run, tmp_path: Path) -> None:
    for name in REGISTERED:
        read = run("consume", "-g", "odd group", "-t", name, "-c", "2", "-q").stdout
        assert read == "one\ntwo\n"
    for name in set(NAMES) - {*REGISTERED}:
        told = run("consume", "-g", "odd group", "-t", name, "-c", "2", "-q", code=1).stderr
        assert "Kafka 0.7 can't register such a name" in told
    partitions = json.loads(run("groups", "describe", "--json", "odd group").stdout)["partitions"]
    assert sorted(each["topic"] for each in partitions) == sorted(REGISTERED)
    exported = run("export-offsets", "odd group").stdout
    run("groups", "delete", "--yes", "odd group")
    run("import-offsets", "-", input=exported)
    assert run("export-offsets", "odd group").stdout == exported


def test_kafka_clients_read_them_and_commit(broker: BrokerProcess, run: Run) -> None:
    settings = {"bootstrap.servers": place(broker, "Kafka"), "log_level": 0}
    admin = AdminClient(settings)

    def list_names() -> set[str]:
        listed = admin.list_topics(timeout=SECONDS).topics
        return {name for name, each in listed.items() if each.error is None} - INTERNAL

    # A topic that another test has deleted goes from the metadata a moment later.
    eventually(lambda: list_names() == {*NAMES}, "the topics and no others")
    group = {"group.id": "odd & group", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **group})
    try:
        for name in NAMES:
            consumer.assign([TopicPartition(name, 0, 0)])
            assert [each.value() for each in consumer.consume(2, SECONDS)] == PAYLOADS
            place_after = TopicPartition(name, 0, 26)
            consumer.commit(offsets=[place_after], asynchronous=False)
            (committed,) = consumer.committed([TopicPartition(name, 0)], SECONDS)
            assert committed.offset == 26
    finally:
        consumer.close()
    described = json.loads(run("groups", "describe", "--json", "odd & group").stdout)
    assert sorted(each["topic"] for each in described["partitions"]) == sorted(NAMES)


def test_the_console_shows_them_escaped_and_its_links_lead_somewhere(broker: BrokerProcess) -> None:
    site = f"http://{place(broker, 'HTTP')}"
    waiting, seen = ["/topics", "/groups"], set()
    while waiting:
        address = waiting.pop()
        page, kind = read(site + address)
        if not kind.startswith("text/html"):
            continue
        assert "alert(1)<x>" not in page
        # What a form sends is exact; everything that is shown is printable.
        assert "\u202e" not in re.sub(r' value="[^"]*"', "", page)
        # Of one page many addresses are linked to, which differ in what follows the `?`.
        links = {
            html.unescape(link).partition("#")[0] for link in re.findall(r'href="(/[^"]*)"', page)
        }
        fresh = {each.partition("?")[0]: each for each in sorted(links)}
        waiting += [each for path, each in fresh.items() if path not in seen]
        seen |= {*fresh}
    assert len([path for path in seen if path.startswith("/topics/")]) >= 7 * len(NAMES)


def test_metrics_have_them_as_labels(broker: BrokerProcess) -> None:
    text, _ = read(f"http://{place(broker, 'HTTP')}/metrics")
    labels = {
        sample.labels.get("topic")
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert labels - {None} >= {*NAMES}


def test_a_backup_has_them(broker: BrokerProcess, run: Run, tmp_path: Path) -> None:
    run("backup", "create", broker.log_dir, tmp_path / "backups", "-q")
    run("restore", tmp_path / "backups", tmp_path / "restored", "-q")
    assert {f"{name}-0" for name in NAMES} <= {
        each.name for each in (tmp_path / "restored").iterdir()
    }
    assert "0 problems, 0 notices" in run("check-log", tmp_path / "restored").stdout
    for name in NAMES:
        into = f"again {NAMES.index(name)}".replace(" ", "-")
        line = ["replay", "-t", name, "--to", into, "--log-dir", tmp_path / "restored", "-q"]
        run(*line)
        assert run("consume", "-t", into, "-o", "beginning", "-c", "2", "-q").stdout == "one\ntwo\n"
        run("topics", "delete", "--yes", into)


def test_a_mirror_copies_them_under_names_of_today(broker: BrokerProcess, tmp_path: Path) -> None:
    source = {"name": "odd", "brokers": [f"127.0.0.1:{broker.port}"]}
    names = {name: f"mirrored-{number}" for number, name in enumerate(NAMES)}
    mirror = {"name": "m", "sources": [source], "whitelist": ".*", "topics": {"map": names}}
    settings = {"log_dir": str(tmp_path / "logs"), "coordination": "embedded"}
    listeners = {"coordination_listen": LOOPBACK}
    target = BrokerProcess(tmp_path / "target", {**settings, **listeners, "mirror": mirror})
    try:
        with SimpleConsumer("127.0.0.1", target.port) as consumer:
            for name in names.values():
                found: list[bytes] = []
                end = time.monotonic() + SECONDS
                while found[:2] != PAYLOADS:
                    assert time.monotonic() < end, (name, found)
                    try:
                        found = [
                            each.payload
                            for each, *_ in consumer.fetch(FetchRequest(name, 0, 0, 1000))
                        ]
                    except UnknownTopicError:
                        continue
    finally:
        assert target.stop() == 0


def test_an_audit_counts_them(broker: BrokerProcess, run: Run) -> None:
    settings = {"callback_handler": "audit", "callback_handler_options": {"window": 0.5}}
    servers = f"0:127.0.0.1:{broker.port}"
    for name in NAMES:
        with Producer(
            ProducerConfig(broker_list=servers, producer_type="async", **settings)
        ) as producer:
            producer.send(name, b"audited")
    ran = run("audit", "--window", "0.5", "--grace", "0", "--json", "--all")
    shown = [json.loads(line) for line in ran.stdout.split("\n") if line]
    counted = {each["topic"] for each in shown if each["kind"] == "window"}
    assert counted == {*NAMES}


def test_the_registry_takes_those_as_subjects_that_can_be_printed(broker: BrokerProcess) -> None:
    printed = [each for each in NAMES if each.isprintable()]
    with closing(RegistryClient(f"http://{place(broker, 'HTTP')}/registry")) as client:
        for size, name in enumerate(printed, 1):
            schema = {"type": "fixed", "name": "Key", "size": size}
            number = client.register(f"{name}-value", schema)
            assert client.latest(f"{name}-value").schema_id == number
            assert json.loads(client.by_id(number).text) == schema
        assert set(client.subjects()) == {f"{name}-value" for name in printed}
        for name in set(NAMES) - {*printed}:
            with pytest.raises(SchemaRegistryError, match="can't be printed"):
                client.register(f"{name}-value", schema)


def test_they_can_be_deleted(tmp_path: Path) -> None:
    for name in NAMES:
        write_segment(tmp_path / "logs", encode_message_set(PAYLOADS), partition=f"{name}-0")
    broker = BrokerProcess(tmp_path / "broker", {"log_dir": str(tmp_path / "logs")})
    address = {"HERMES_BROKER": f"127.0.0.1:{broker.port}"}
    done = CliRunner().invoke(program, ["topics", "delete", "--yes", "--", *NAMES], env=address)
    assert (done.exit_code, done.stdout.count("deleted ")) == (0, len(NAMES))
    assert broker.stop() == 0
    assert not [each.name for each in (tmp_path / "logs").iterdir() if each.is_dir()]
