"""A broker whose coordination file is damaged: messages are served, and no group is wrongly."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import pytest
from hermes_testkit import BrokerProcess, message, produce_acknowledged, wait_until_visible
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from zookeeper_process import four_letter_word

StartBroker = Callable[..., BrokerProcess]

FILE = ".hermes_coordination"
HELLO = message(b"hello")
OFFSET = "/consumers/group/offsets/t/0-0"


def where(broker: BrokerProcess) -> str:
    """Where its coordination listens."""
    return broker.wait_for_line("coordination is embedded").partition(" at ")[2].split()[0]


def ask(connect: str, path: str) -> bytes | None:
    """What a node holds; None when there is none."""
    client = KazooClient(connect, timeout=10)
    client.start(30)
    try:
        return client.get(path)[0] if client.exists(path) else None
    finally:
        client.stop()
        client.close()


@pytest.fixture
def left(tmp_path: Path, start_broker: StartBroker) -> BrokerProcess:
    """A broker that has stopped, with a message and a group's offset."""
    broker = start_broker(coordination="embedded", coordination_listen="tcp:0:interface=127.0.0.1")
    with broker.connect() as client:
        client.call(produce_acknowledged(("t", 0, HELLO)))
    client = KazooClient(where(broker))
    client.start()
    client.create(OFFSET, b"15", makepath=True)
    client.stop()
    client.close()
    assert broker.stop() == 0
    return broker


def test_an_offset_outlives_a_stop(left: BrokerProcess) -> None:
    left.start()
    assert ask(where(left), OFFSET) == b"15"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: bytes(100) + content[100:],
        lambda content: b"",
        lambda content: None,
    ],
    ids=["halved", "header", "emptied", "deleted"],
)
def test_a_damaged_file_stops_coordination_and_nothing_else(
    left: BrokerProcess, damage: Callable[[bytes], bytes | None]
) -> None:
    path = Path(left.log_dir) / FILE
    content = damage(path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    left.lines.clear()
    left.start()
    with left.connect() as client:
        wait_until_visible(client, "t", 0, len(HELLO))
        client.call(produce_acknowledged(("t", 0, HELLO)))
    line = left.wait_for_line("out of service")
    assert f"hermes coordination restore {quote(str(path.parent))}" in line
    connect = where(left)
    port = int(connect.rpartition(":")[2])
    assert "not currently serving" in four_letter_word(port, "srvr")
    assert four_letter_word(port, "ruok") == "imok"
    refused = KazooClient(connect)
    with pytest.raises(KazooTimeoutError):
        refused.start(2)
    refused.close()
    restored = subprocess.run(
        [Path(sys.executable).with_name("hermes"), "coordination", "restore", str(path.parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "restored from" in restored.stdout
    left.wait_for_line("coordination serves again")
    assert ask(connect, OFFSET) == b"15"
    client = KazooClient(connect)
    client.start()
    try:
        found = wait_for_node(client, "/brokers/ids/0")
    finally:
        client.stop()
        client.close()
    assert found.endswith(f":{left.port}".encode())
    assert left.stop() == 0
    assert sum("out of service" in line for line in left.lines) == 1
    assert "Traceback" not in "".join(left.lines)


def wait_for_node(client: KazooClient, path: str) -> bytes:
    """Wait until a node is there."""
    made = client.handler.event_object()
    if client.exists(path, watch=lambda _event: made.set()) is None:
        made.wait(60)
    value: bytes = client.get(path)[0]
    return value


def test_a_file_that_is_missing_is_said_where_there_are_topics(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    broker = start_broker(coordination="none")
    with broker.connect() as client:
        client.call(produce_acknowledged(("t", 0, HELLO)))
    assert broker.stop() == 0
    again = start_broker(coordination="embedded", coordination_listen="tcp:0:interface=127.0.0.1")
    again.wait_for_line("there was no coordination file")
    client = KazooClient(where(again))
    client.start()
    try:
        assert wait_for_node(client, "/brokers/topics/t/0") == b"1"
    finally:
        client.stop()
        client.close()
