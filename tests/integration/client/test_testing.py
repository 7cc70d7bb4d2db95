"""The broker for users' own tests: quick, isolated, as often as one likes."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from hermes import ConfigError, FetchRequest, HermesError, Producer, ProducerConfig, SimpleConsumer
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.testing import RunningBroker, running_broker


def round_trip(broker: RunningBroker, payload: bytes) -> list[bytes]:
    with Producer(ProducerConfig(broker_list=broker.broker_list, acks="flushed")) as producer:
        producer.send("clicks", payload)
    with SimpleConsumer(broker.host, broker.port) as consumer:
        messages = consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20))
        return [message.payload for message, _ in messages]


def test_many_brokers_in_one_process_leave_nothing_behind() -> None:
    with running_broker() as broker:
        round_trip(broker, b"warm")
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for number in range(10):
        with running_broker() as broker:
            assert round_trip(broker, b"%d" % number) == [b"%d" % number]
        assert not broker.log_dir.exists()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files


def test_brokers_side_by_side() -> None:
    with (
        running_broker() as first,
        running_broker(settings={"broker_id": 1, "num_partitions": 3}) as second,
    ):
        assert round_trip(first, b"1") == [b"1"]
        listed = f"{first.broker_list},{second.broker_list}"
        with Producer(ProducerConfig(broker_list=listed, acks="written")) as producer:
            assert {producer.send("t", b"x", key=key).result().partition for key in range(4)} == {
                0,
                1,
                2,
            }


def test_a_data_directory_of_ones_own_is_kept(tmp_path) -> None:
    with running_broker(tmp_path / "log") as broker:
        round_trip(broker, b"kept")
    with running_broker(tmp_path / "log") as broker:
        assert round_trip(broker, b"more") == [b"kept", b"more"]


def test_a_wrong_setting_is_named() -> None:
    with (
        pytest.raises(ConfigError, match="num_partitions"),
        running_broker(settings={"num_partitions": 0}),
    ):
        pass


def test_a_failed_start_is_raised_and_leaves_nothing_behind(tmp_path) -> None:
    with running_broker(tmp_path / "log"):
        files = len(os.listdir("/proc/self/fd"))
        with pytest.raises(HermesError, match="log"), running_broker(tmp_path / "log"):
            pass
        assert len(os.listdir("/proc/self/fd")) == files


def test_a_broker_with_coordination_serves_groups() -> None:
    with running_broker(settings={"coordination": "embedded"}) as broker:
        assert broker.zookeeper_connect is not None
        with Producer(ProducerConfig(zookeeper_connect=broker.zookeeper_connect)) as producer:
            producer.send("clicks", b"found through coordination")
        config = ConsumerConfig(
            group="g", zookeeper_connect=broker.zookeeper_connect, auto_offset_reset="smallest"
        )
        with Consumer.create(config) as consumer:
            (stream,) = consumer.create_message_streams({"clicks": 1})["clicks"]
            assert next(iter(stream))[0] == b"found through coordination"
    with running_broker() as broker:
        assert broker.zookeeper_connect is None


def test_a_registration_that_fails_is_raised_and_leaves_nothing_behind() -> None:
    with running_broker(settings={"coordination": "embedded"}) as broker:
        threads, files = _threads(), len(os.listdir("/proc/self/fd"))
        settings = {
            "coordination": "zookeeper",
            "zookeeper_connect": broker.zookeeper_connect,
        }
        with (
            pytest.raises(HermesError, match="in use"),
            running_broker(settings=settings),
        ):
            pass
        # The broker that goes on closes its end of what was cut in its own time.
        deadline, pause = time.monotonic() + 60, threading.Event()
        while len(os.listdir("/proc/self/fd")) > files or _threads() > threads:
            assert time.monotonic() < deadline, "something was left behind"
            pause.wait(0.01)


def _threads() -> int:
    """How many there are, without that in which the broker that goes on may look for damage."""
    return sum("hermes-damage" not in each.name for each in threading.enumerate())


def test_the_fixture(tmp_path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["hermes.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from hermes import FetchRequest, SimpleConsumer

            @pytest.fixture
            def hermes_broker_settings():
                return {"num_partitions": 7}

            @pytest.fixture
            def hermes_broker_security(request):
                return getattr(request, "param", {})

            @pytest.mark.parametrize(
                "hermes_broker_security", [{"users": {"me": "secret"}}], indirect=True
            )
            def test_security(hermes_broker):
                me = hermes_broker.client_settings("me")
                with SimpleConsumer(hermes_broker.host, hermes_broker.port, **me) as consumer:
                    assert consumer.metadata().broker_id == 0

            def test_settings(hermes_broker):
                with SimpleConsumer(hermes_broker.host, hermes_broker.port) as consumer:
                    (topic,) = consumer.metadata(["t"]).topics
                    assert topic.partition_count == 7

            @pytest.mark.parametrize("turn", range(2))
            def test_it(hermes_broker, turn):
                with SimpleConsumer(hermes_broker.host, hermes_broker.port) as consumer:
                    consumer.create_topic("t")  # which fails where it exists
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
