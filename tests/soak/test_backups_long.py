"""Backups under full load, one after the other; every second one is killed at any moment."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hermes_testkit import BrokerProcess
from soak import report, seed, times

from hermes.client import FetchRequest, SimpleConsumer, SyncProducer
from hermes.errors import HermesError
from hermes.offline.backup import Repository, restore, verify
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck
from hermes.protocol import Acks, ProduceRequest, encode_message_set

_BACKUPS = 20
_HERMES = str(Path(sys.executable).with_name("hermes"))
_TOPICS = ("kept", "trimmed", "replaced")


class _Load:
    """Writes to all topics, and deletes one again and again; knows what is flushed of `kept`."""

    def __init__(self, port: int) -> None:
        self.flushed = 0
        self._port = port
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(topic,)) for topic in _TOPICS]
        for thread in self._threads:
            thread.start()

    def _run(self, topic: str) -> None:
        number = 0
        with (
            SyncProducer("127.0.0.1", self._port) as producer,
            SimpleConsumer("127.0.0.1", self._port) as consumer,
        ):
            while not self._end.is_set():
                payloads = [b"%s %08d " % (topic.encode(), number + n) * 8 for n in range(500)]
                request = ProduceRequest(topic, 0, encode_message_set(payloads))
                (outcome,) = producer.send_acknowledged([request], Acks.FLUSHED)
                if isinstance(outcome, HermesError):
                    raise outcome
                number += 500
                if topic == "kept":
                    self.flushed = number
                if topic == "replaced" and number % 10_000 == 0:
                    consumer.delete_topic(topic)

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def _kept(log_dir: Path) -> int:
    """How many messages of `kept` a data directory holds, each where it belongs."""
    count = 0
    for path in sorted((log_dir / "kept-0").glob("*.kafka")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            length = 4 + int.from_bytes(data[position : position + 4], "big")
            assert data[position + 10 : position + length] == b"kept %08d " % count * 8
            count += 1
            position += length
    return count


@pytest.mark.soak
def test_backups_under_load(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    first_seed = seed()
    random = Random(first_seed)
    broker = start_broker(
        segment_bytes="2MB",
        retention_check_interval="1s",
        topics={"trimmed": {"retention_bytes": "6MB"}},
    )
    backups = Repository(tmp_path / "backups")
    create = [_HERMES, "backup", "create", str(broker.log_dir), backups.path, "--keep", "3"]
    create += ["-b", f"127.0.0.1:{broker.port}"]
    load, whole, killed = _Load(broker.port), 0, 0
    try:
        for number in range(times(_BACKUPS)):
            before = backups.names() if whole else []
            flushed = load.flushed
            process = subprocess.Popen(create, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            assert process.stderr is not None
            try:
                _, told = process.communicate(timeout=random.uniform(0.3, 3) if number % 2 else 600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                # Of those before, at most what --keep was to delete is gone.
                assert before[-2:] == [name for name in backups.names() if name in before[-2:]]
                continue
            assert process.returncode == 0, told
            whole += 1
            name = backups.latest()
            manifest = backups.read(name)
            assert list(verify(backups.directory(name), manifest)) == []
            target = tmp_path / f"restored-{number}"
            restore(backups.directory(name), manifest, str(target))
            assert list(DirectoryCheck(target, Limits(), pause=lambda: None).run()) == []
            assert _kept(target) >= flushed
            subprocess.run(["rm", "-r", str(target)], check=True)
    finally:
        load.stop()
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        assert consumer.fetch(FetchRequest("kept", 0, 0, 1000))
    assert whole >= times(_BACKUPS) // 2
    report("backups", seed=first_seed, whole=whole, killed=killed, messages=load.flushed)
