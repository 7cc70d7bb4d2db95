"""`twistd hermes` from outside: its command line, its start, its ready file, its stop."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hermes_testkit import (
    BrokerProcess,
    fetch,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
    waiting_fetch,
)

StartBroker = Callable[..., BrokerProcess]

HELLO = message(b"hello")


def run_twistd(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    twistd = Path(sys.executable).with_name("twistd")
    return subprocess.run(
        [str(twistd), "-n", "--pidfile=", "hermes", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"brokerid": 1}, "brokerid"),
        ({"segment_bytes": "1 gigabite"}, "segment_bytes"),
        ({"retention_time": 7}, "retention_time"),
        ({"num_partitions": "two"}, "num_partitions"),
        ({"listen": "tcp"}, "listen"),
        ({"listen": "carrier-pigeon:9"}, "listen"),
        ({"coordination": "zookeeper"}, "coordination"),
        ({"retention_policy": "no-such-plugin"}, "no-such-plugin"),
        ({"topics": {"t": {"partitons": 3}}}, "partitons"),
        ({"topics": {"a/b": {"partitions": 3}}}, "a/b"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_1(
    tmp_path: Path, settings: dict[str, object], expected: str
) -> None:
    config = {"broker_id": 0, "log_dir": str(tmp_path / "logs"), **settings}
    (tmp_path / "broker.yaml").write_text(yaml.safe_dump(config))
    ended = run_twistd(tmp_path, "--config", "broker.yaml")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert expected in line
    assert "Traceback" not in ended.stdout
    assert not (tmp_path / "logs").exists(), "nothing may start before the configuration is right"


def test_no_configuration_says_how(tmp_path: Path) -> None:
    ended = run_twistd(tmp_path)
    assert ended.returncode == 1
    assert "--config" in ended.stderr


def test_the_ready_file_tells_the_addresses_and_goes_with_the_broker(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    ready = tmp_path / "ready.json"
    broker = start_broker(
        ready_file=str(ready),
        listen=["tcp:0:interface=127.0.0.1", "tcp:0:interface=127.0.0.1"],
        broker_id=4,
    )
    told = json.loads(ready.read_text())
    assert told["broker_id"] == 4
    assert told["pid"] == broker.process.pid
    assert [entry["host"] for entry in told["listen"]] == ["127.0.0.1"] * 2
    for entry in told["listen"]:
        broker.port = entry["port"]
        with broker.connect() as client:
            assert client.alive()
    assert broker.stop() == 0
    assert not ready.exists()


def test_a_second_broker_on_the_directory_is_refused_and_harms_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    second = BrokerProcess(tmp_path / "second", {"log_dir": str(broker.log_dir)}, wait=False)
    assert second.wait() == 1
    output = "".join(second.lines)
    assert str(broker.process.pid) in output
    assert "Traceback" not in output
    assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
    with broker.connect() as client:
        assert client.alive()


def test_a_changed_broker_id_is_one_clear_line_and_nothing_is_forgotten(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(broker_id=4)
    assert broker.stop() == 0
    told = broker.config_file.read_text()
    broker.config_file.write_text(told.replace("broker_id: 4", "broker_id: 5"))
    broker.start(wait=False)
    assert broker.wait() == 1
    (line,) = [line for line in broker.lines if "broker 4" in line and "broker 5" in line]
    assert "hermes config adopt" in line
    assert "Traceback" not in "".join(broker.lines)
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    hermes = Path(sys.executable).with_name("hermes")
    subprocess.run([hermes, "config", "adopt", broker.config_file], check=True, timeout=60)
    broker.start()
    assert broker.stop() == 0


def test_a_port_in_use_is_one_clear_line_and_no_marker(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    logs = tmp_path / "other"
    second = BrokerProcess(
        tmp_path / "second",
        {"log_dir": str(logs), "listen": f"tcp:{broker.port}:interface=127.0.0.1"},
        wait=False,
    )
    assert second.wait() == 1
    output = "".join(second.lines)
    assert str(broker.port) in output
    assert "Traceback" not in output
    assert not (logs / ".kafka_cleanshutdown").exists()


def test_a_stop_finishes_answers_and_keeps_every_byte(start_broker: StartBroker) -> None:
    """SIGTERM while a large answer is on its way to a slow reader, and a fetch waits."""
    broker = start_broker(flush_messages=10**6, flush_interval="1h", segment_bytes="64MiB")
    stored = message(bytes(990_000)) * 8
    with broker.connect() as slow, broker.connect() as waiter, broker.connect() as producer:
        producer.call(produce_acknowledged(("t", 0, stored)))
        slow.send(fetch("t", 0, 0, 1 << 24))
        waiter.send(waiting_fetch(("t", 0, len(stored), 100), max_wait_ms=3_600_000))
        producer.send(produce("t", 0, HELLO))
        assert producer.alive()
        broker.process.terminate()
        assert slow.answer()[6:] == stored
        assert len(waiter.answer()) == 22
        assert waiter.closed()
    assert broker.wait() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    assert broker.segment("t").read_bytes() == stored + HELLO


def test_a_reader_that_never_reads_does_not_hold_up_the_stop(start_broker: StartBroker) -> None:
    broker = start_broker(stop_timeout="100ms")
    with broker.connect() as client, broker.connect() as stuck:
        client.call(produce_acknowledged(("t", 0, message(bytes(990_000)) * 20)))
        stuck.send(fetch("t", 0, 0, 1 << 25))
        assert client.alive()
        assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()


def test_running_out_of_descriptors_kills_nobody(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.connect() as client:
        client.send(produce("t", 0, HELLO))
        wait_until_visible(client, "t", 0, 15)
        used = len(os.listdir(f"/proc/{broker.process.pid}/fd"))
        pid, limits = (
            broker.process.pid,
            resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE),
        )
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 5, limits[1]))
        surplus = [broker.connect() for _ in range(40)]
        assert client.alive()
        assert client.call(fetch("t", 0, 0))[6:] == HELLO
        client.call(produce_acknowledged(("u", 0, HELLO)))
        for each in surplus:
            each.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert client.alive()
    with broker.connect() as again:
        assert again.alive()
    assert broker.stop() == 0
    lines = "".join(broker.lines)
    # Twisted keeps a descriptor in reserve; that somebody else was faster is its own to tell.
    assert lines.count("Traceback") == lines.count("Could not reserve EMFILE recovery"), lines


def test_json_logs_are_json(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "json",
        {"log_dir": str(tmp_path / "logs"), "log_format": "json"},
        wait=False,
    )
    broker.wait_for_line("is ready")
    broker.stop()
    events = [json.loads(line) for line in broker.lines if line.strip()]
    ours = {event["message"]: event for event in events if event.get("broker_id") == 0}
    assert [message for message in ours if "is ready" in message]
    assert ours["broker 0 has stopped"]["level"] == "info"
    assert all(event["time"].endswith("+00:00") for event in events)


def test_a_broker_of_kafkas_directory(start_broker: StartBroker, tmp_path: Path) -> None:
    """Strange entries are reported and left alone; damaged partitions don't stop the others."""
    logs = tmp_path / "logs"
    (logs / "good-0").mkdir(parents=True)
    (logs / "good-0" / f"{0:020d}.kafka").write_bytes(HELLO)
    (logs / "strange").mkdir()
    (logs / "stray.txt").write_text("stray")
    (logs / "torn-0").mkdir()
    (logs / "torn-0" / f"{0:020d}.kafka").write_bytes(HELLO)
    (logs / "torn-0" / f"{99:020d}.kafka").write_bytes(HELLO)
    (logs / ".kafka_cleanshutdown").touch()
    broker = start_broker(log_dir=str(logs))
    with broker.connect() as client:
        assert client.call(fetch("good", 0, 0))[6:] == HELLO
        assert client.alive()
    assert broker.stop() == 0
    output = "".join(broker.lines)
    for name in ("strange", "stray.txt", "torn-0"):
        assert name in output
    assert (logs / "strange").is_dir()
    assert (logs / "stray.txt").read_text() == "stray"
    assert (logs / "torn-0" / f"{99:020d}.kafka").read_bytes() == HELLO


def test_a_broker_that_has_started_collects_garbage_again(start_broker: StartBroker) -> None:
    script = """
import gc, signal
from twisted.scripts.twistd import run
signal.signal(signal.SIGUSR2, lambda *_: print("it collects:", gc.isenabled(), flush=True))
run()
"""
    broker = start_broker(program=(sys.executable, "-c", script))
    broker.process.send_signal(signal.SIGUSR2)
    assert broker.wait_for_line("it collects:").endswith("it collects: True\n")


def test_a_second_signal_cuts_off_who_is_waited_for(start_broker: StartBroker) -> None:
    broker = start_broker(stop_timeout="1h", flush_interval="1h", flush_messages=1_000_000)
    with broker.connect() as client, broker.connect() as reader:
        many = HELLO * 1_000_000
        for _ in range(3):
            client.call(produce_acknowledged(("t", 0, many)))
        wait_until_visible(client, "t", 0, 3 * len(many))
        client.call(produce_acknowledged(("u", 0, HELLO), acks=1))
        reader.send(fetch("t", 0, 0, 3 * len(many)))
        reader.receive(6)  # it has begun to come
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_for_line("Closed)")
        assert broker.process.poll() is None, "the answer is on its way"
        assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.wait_for_line("told to stop once more")


HANG = """
import os, threading
from hermes.storage import FileLayer

def fdatasync(fd, real=FileLayer.fdatasync):
    if "stuck-0" in os.readlink(f"/proc/self/fd/{fd}") and os.path.exists("hang"):
        threading.Event().wait()
    real(fd)

FileLayer.fdatasync = staticmethod(fdatasync)
"""


@pytest.mark.parametrize("running", [True, False], ids=["a running flush", "the last flush"])
def test_a_disk_that_hangs_does_not_hold_up_a_stop(tmp_path: Path, running: bool) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HANG)
    often = {"flush_messages": 1}
    seldom = {"flush_interval": "1h", "flush_messages": 1_000_000}
    broker = BrokerProcess(
        tmp_path / "broker",
        {
            "log_dir": str(tmp_path / "logs"),
            "stop_timeout": "300ms",
            "topics": {"stuck": often if running else seldom, "other": seldom},
        },
        environment={"PYTHONPATH": str(tmp_path / "site")},
    )
    with broker.connect() as client:
        (broker.directory / "hang").touch()
        for topic in ("other", "stuck"):
            client.call(produce_acknowledged((topic, 0, HELLO), acks=1))
    assert broker.stop() == 0
    line = broker.wait_for_line("left behind as it is")
    assert "stuck-0" in line
    assert "critical" in line
    assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
    (broker.directory / "hang").unlink()
    broker.start()
    with broker.connect() as client:
        for topic in ("other", "stuck"):
            assert client.call(fetch(topic, 0, 0))[6:] == HELLO
    assert broker.stop() == 0
