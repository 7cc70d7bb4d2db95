"""Backups of a broker that is being written to."""

import json
import threading
import time

from click.testing import CliRunner

from hermes.cli import program
from hermes.client import SyncProducer
from hermes.protocol import Acks, ProduceRequest, encode_message_set

TOPICS = ("clicks", "views")
DEADLINE_SECONDS = 60


class Load:
    """Produces numbered messages, acknowledged when they are flushed, until it is stopped."""

    def __init__(self, port):
        self.counts = dict.fromkeys(TOPICS, 0)
        self._end = threading.Event()
        self._port = port
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with SyncProducer("127.0.0.1", self._port) as producer:
            while not self._end.is_set():
                for topic in TOPICS:
                    start = self.counts[topic]
                    payloads = [b"%s %08d" % (topic.encode(), start + n) for n in range(200)]
                    request = ProduceRequest(topic, 0, encode_message_set(payloads))
                    producer.send_acknowledged([request], Acks.FLUSHED)
                    self.counts[topic] += 200

    def wait_for(self, count):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while min(self.counts.values()) < count:
            assert self._thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self):
        self._end.set()
        self._thread.join(DEADLINE_SECONDS)


def hermes(*arguments, port=1, code=0):
    """Run `hermes` in this process, which starts no other; what it wrote to stdout."""
    environment = {"HERMES_BROKER": f"127.0.0.1:{port}"}
    ended = CliRunner().invoke(program, [*map(str, arguments)], env=environment)
    assert ended.exit_code == code, ended.output
    return ended.stderr if code else ended.stdout


def test_backups_under_load_hold_what_was_flushed(start_broker, tmp_path):
    broker = start_broker(segment_bytes=20_000)
    backups, restored = tmp_path / "back ups", tmp_path / "restored"
    load = Load(broker.port)
    taken, flushed = [], []
    try:
        for _ in range(3):
            load.wait_for(load.counts["clicks"] + 1000)
            flushed.append(dict(load.counts))
            create = ["backup", "create", broker.log_dir, backups, "--json", "--keep", 2]
            taken.append(json.loads(hermes(*create, port=broker.port)))
    finally:
        load.stop()
    assert taken[0]["linked_bytes"] == 0
    assert 0 < taken[2]["copied_bytes"] < taken[2]["size_bytes"]
    assert (taken[2]["deleted"], taken[2]["was_running"]) == ([taken[0]["name"]], True)
    listed = map(json.loads, hermes("backup", "list", backups, "--json").splitlines())
    assert [each["name"] for each in listed] == [each["name"] for each in taken[1:]]
    hermes("backup", "verify", backups, taken[1]["name"])
    # In the older one is what was flushed when it began, and nothing but what was sent.
    told = hermes("restore", backups, restored, "--from", taken[1]["name"])
    assert told.startswith(f"{restored}: 2 partitions, ")
    again = hermes("restore", backups, restored, code=1)
    assert again == f"hermes: {restored} is not empty: give a new directory\n"
    assert hermes("check-log", restored).endswith(": 0 problems, 0 notices\n")
    second = start_broker(log_dir=str(restored))
    for topic in TOPICS:
        lines = hermes("consume", "-t", topic, "-e", port=second.port).splitlines()
        assert lines == [f"{topic} {number:08}" for number in range(len(lines))]
        assert flushed[1][topic] <= len(lines) <= load.counts[topic]
    other = ["backup", "create", restored, backups, "-b", f"127.0.0.1:{broker.port}"]
    confused = hermes(*other, code=1)
    assert "is it the broker that uses this directory?" in confused
