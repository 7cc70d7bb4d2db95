"""The HTTP port of a running broker: its metrics agree with what the test has counted itself."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hermes_testkit import (
    BrokerProcess,
    RawClient,
    fetch,
    message,
    produce,
    produce_acknowledged,
    waiting_fetch,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from scraped_kills import scraped_kills
from scraping import get, scrape, until

from hermes import Consumer, ConsumerConfig, SimpleConsumer
from hermes.broker.families import FAMILIES as BROKER_FAMILIES
from hermes.errors import ConfigError, HermesError
from hermes.metrics import Family
from hermes.registry.metrics import FAMILIES as REGISTRY_FAMILIES
from hermes.testing import RunningBroker, running_broker

ROOT = Path(__file__).parents[3]
HTTP = {"http_listen": "tcp:0:interface=127.0.0.1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(settings={**HTTP, "coordination": "embedded"}) as running:
        yield running


def address(broker: RunningBroker) -> str:
    assert broker.http is not None
    return broker.http


def test_what_a_test_counts_is_what_the_broker_says() -> None:
    one = message(b"x" * 90)
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(settings={**HTTP, "coordination": "embedded"}))
        client = stack.enter_context(RawClient(broker.port))
        client.send(produce("counted", 0, one) * 30 + produce("counted", 0, one * 2))
        for _ in range(7):
            assert client.call(produce_acknowledged(("counted", 0, one), acks=2))[12:14] == b"\0\0"
        size = 39 * len(one)
        assert len(client.call(fetch("counted", 0, 0, size))) == 6 + size
        assert client.call(fetch("counted", 0, size + 1))[4:6] == b"\0\1"
        client.call(waiting_fetch(("counted", 0, 0, size), ("counted", 0, size, 10), min_bytes=1))
        assert client.call(produce_acknowledged(("counted", 5, one)))[12:14] != b"\0\0"
        refused = stack.enter_context(RawClient(broker.port))
        refused.send(produce("counted", 9, one))
        assert refused.closed()

        found = until(address(broker), lambda now: now("hermes_connections") == 1)
        for name, expected in {
            "hermes_topic_messages_in_total": 39,
            "hermes_topic_bytes_in_total": size,
            "hermes_topic_bytes_out_total": 2 * size,
        }.items():
            assert found(name, topic="counted") == expected
        for kind, expected in {
            "produce": 32,  # the one that was refused was begun
            "acknowledged_produce": 8,
            "fetch": 2,
            "waiting_fetch": 1,
            "multifetch": 0,
        }.items():
            assert found("hermes_requests_total", type=kind) == expected
            done = found("hermes_request_seconds_count", type=kind)
            assert done == expected - (kind == "produce")
        refusals = {
            dict(labels)["type"] + ":" + dict(labels)["reason"]: value
            for (name, labels), value in found.samples.items()
            if name == "hermes_requests_refused_total"
        }
        assert refusals == {
            "fetch:offset_out_of_range": 1,
            "acknowledged_produce:wrong_partition": 1,
            "produce:wrong_partition": 1,
        }
        assert found("hermes_produce_acknowledged_seconds_count") == 8
        assert found("hermes_fetches_total") == 4
        assert found("hermes_connections_accepted_total") == 2
        assert found("hermes_connections_closed_by_broker_total") == 1
        assert found("hermes_topics") == found("hermes_logs") == 1
        assert found("hermes_coordination_registered") == 1
        flushes = found("hermes_flushes_total")
        assert 7 <= flushes <= 38  # a wait of its own for each acknowledged one
        assert found("hermes_flush_seconds_count") == flushes
        assert 7 <= found("hermes_append_visible_seconds_count") <= flushes
        log = {"topic": "counted", "partition": "0"}
        files = sum(path.stat().st_size for path in broker.log_dir.glob("counted-0/*.kafka"))
        assert found("hermes_log_size_bytes", **log) == files == size
        assert found("hermes_log_segments", **log) == 1
        assert found("hermes_log_earliest_offset", **log) == 0
        assert found("hermes_log_high_watermark", **log) == size
        assert found("hermes_log_end_offset", **log) == size
        appended = found("hermes_log_last_append_timestamp_seconds", **log)
        newest = max(path.stat().st_mtime for path in broker.log_dir.glob("counted-0/*.kafka"))
        assert abs(appended - newest) < 5


def test_a_groups_lag_is_what_it_has_not_committed(broker: RunningBroker) -> None:
    sizes = [len(message(b"%d" % number)) for number in range(10)]
    with RawClient(broker.port) as client:
        for number in range(10):
            client.call(produce_acknowledged(("lagging", 0, message(b"%d" % number))))
    config = ConsumerConfig(
        group="late",
        zookeeper_connect=broker.zookeeper_connect or "",
        auto_commit=False,
        auto_offset_reset="smallest",
    )
    labels = {"group": "late", "topic": "lagging", "partition": "0"}
    with Consumer.create(config) as connector:
        (stream,) = connector.create_message_streams({"lagging": 1})["lagging"]
        for _ in range(4):
            next(stream)
        connector.commit_offsets()
        series = "hermes_group_lag_bytes", frozenset(labels.items())
        found = until(address(broker), lambda now: series in now.samples)
    assert found("hermes_group_lag_bytes", **labels) == sum(sizes[4:])


def test_a_deleted_topics_series_end(broker: RunningBroker) -> None:
    with RawClient(broker.port) as client:
        client.call(produce_acknowledged(("gone", 0, message(b"x"))))
    scrape(address(broker))("hermes_topic_messages_in_total", topic="gone")
    with SimpleConsumer(broker.host, broker.port) as consumer:
        consumer.delete_topic("gone")
    series = scrape(address(broker)).samples
    assert not [labels for _, labels in series if ("topic", "gone") in labels]


def test_every_family_is_in_the_document_and_no_other(broker: RunningBroker) -> None:
    status, text = get(f"{address(broker)}/metrics", Accept="application/openmetrics-text")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    shown = {
        f"{name}_total" if family.type == "counter" else name: family
        for name, family in families.items()
        if name.startswith("hermes_")
    }
    assert set(shown) == set(FAMILIES)
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = {line for line in document.splitlines() if line.startswith("| `hermes_")}
    rows = {line for line in rows if not line.startswith(OF_OTHERS)}
    assert rows == {_row(family) for family in FAMILIES.values()}
    for name, family in FAMILIES.items():
        assert (shown[name].type, shown[name].documentation) == (family.kind, family.help)
        for sample in shown[name].samples:
            assert set(sample.labels) - {"le"} == set(family.labels)


# A broker serves its registry's beside its own.
FAMILIES = {**BROKER_FAMILIES, **REGISTRY_FAMILIES}

# Metrics of other processes and ports, which have tests of their own.
OF_OTHERS = tuple(
    f"| `hermes_{each}" for each in ("audit_", "kafka_", "mirror_", "replica", "transactions")
)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


def test_who_is_asked_by_another_name_answers_programs_only(broker: RunningBroker) -> None:
    other = {"Host": "anything.example"}
    assert get(f"{address(broker)}/health/live", **other) == (200, '{\n  "live": true\n}\n')
    for path in ("/health", "/health/"):
        assert "/health/live and /health/ready" in get(f"{address(broker)}{path}")[1]
    assert get(f"{address(broker)}/metrics", **other)[0] == 200
    assert get(f"{address(broker)}/", **other)[0] == 403


def test_partitions_can_be_left_out() -> None:
    with running_broker(settings={**HTTP, "metrics_per_partition": False}) as broker:
        with RawClient(broker.port) as client:
            client.call(produce_acknowledged(("t", 0, message(b"x"))))
        found = scrape(address(broker))
        assert found("hermes_topic_messages_in_total", topic="t") == 1
        assert not [name for name, _ in found.samples if name.startswith("hermes_log_")]


def ready(broker: RunningBroker) -> tuple[int, dict[str, dict[str, object]]]:
    status, text = get(f"{address(broker)}/health/ready")
    answer = json.loads(text)
    assert answer["ready"] == (status == 200)
    return status, answer["checks"]


def test_ready_says_why(broker: RunningBroker) -> None:
    status, checks = ready(broker)
    assert status == 200
    assert set(checks) == {"ports", "recovery", "coordination", "partitions", "disk"}


def test_it_is_not_ready_with_a_full_disk_or_an_offline_partition(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    (log_dir / "broken-0").mkdir(parents=True)
    (log_dir / "broken-0" / f"{7:020d}.kafka").mkdir()
    settings = {**HTTP, "ready_min_free": "1000000GiB"}
    with running_broker(log_dir, settings) as broker:
        status, checks = ready(broker)
        assert status == 503
        assert {name for name, check in checks.items() if not check["ok"]} == {"disk", "partitions"}
        assert "broken-0: " in str(checks["partitions"]["detail"])
        assert "ready_min_free is 1073741824000000" in str(checks["disk"]["detail"])
        assert scrape(address(broker))("hermes_ready", check="partitions") == 0


def test_damage_is_told_wherever_somebody_may_look(tmp_path: Path) -> None:
    """What a recovery meets is looked at at once; rounds over all logs come later."""
    good, log_dir = message(b"good"), tmp_path / "logs"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "t-0" / f"{0:020d}.kafka").write_bytes(good + good[:-1] + b"?" + good)
    with running_broker(log_dir, HTTP) as broker:
        found = until(address(broker), lambda found: found("hermes_logs_damaged") == 1)
        assert found("hermes_topic_damaged_segments", topic="t") == 1
        text = f"damaged at offsets {len(good)} to {2 * len(good)}"
        with SimpleConsumer(broker.host, broker.port) as consumer:
            assert [each.damage for each in consumer.describe_partitions("t")] == [text]
        assert found("hermes_ready", check="partitions") == 1  # it serves


def test_the_port_is_open_while_the_broker_runs() -> None:
    with running_broker(settings=HTTP) as broker:
        idle = HTTPConnection(address(broker).removeprefix("http://"), timeout=30)
        idle.request("GET", "/health/live")
        assert idle.getresponse().read()
    with closing(idle):
        assert idle.sock.recv(1) == b""  # the stop closed it
    with pytest.raises(OSError):
        get(f"{address(broker)}/health/live")


def test_there_is_none_unless_it_is_asked_for() -> None:
    with running_broker() as broker:
        assert broker.http is None


def test_counters_survive_kills_but_for_a_reset(start_broker: Callable[..., BrokerProcess]) -> None:
    """Two kills; tests/soak has ten."""
    scraped_kills(start_broker(**HTTP), kills=2)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"http_listen": "tcp:x"}, ConfigError, "http_listen: expected an endpoint"),
        ({"http_listen": "tcp:1", "listen": "tcp:1"}, ConfigError, "is taken by listen already"),
        ({"http_hosts": ["a:80"]}, ConfigError, "http_hosts: expected a host name or an address"),
        (
            {"http_listen": "tcp:0:interface=192.0.2.1", "allow_insecure": True},
            HermesError,
            "http_listen: can't open",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    settings: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught, running_broker(settings=settings):
        pass
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
