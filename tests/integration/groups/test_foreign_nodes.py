"""What others have written into the tree: one bad node costs what it is about, and nothing else."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_cluster import Cluster

from hermes.client import Producer, ProducerConfig, SyncProducer
from hermes.client.groups import Connector, MessageStream
from hermes.coordination.sessions import Session
from hermes.errors import HermesError
from hermes.protocol import Acks, ProduceRequest, encode_message_set

Join = Callable[[], "Member"]


class Member:
    """A consumer of both topics, whose streams are read for as long as it is there.

    Attributes:
        taken_at_first: how many partitions it had taken when the first messages were fetched.
    """

    def __init__(self, connector: Connector, wanted: dict[str, int]) -> None:
        self.taken_at_first = 0
        self.found: list[tuple[str, int]] = []
        self.errors: list[Exception] = []
        self._connector = connector
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()  # before it joins, which may take as long as its session's timeout
        streams = [
            each for one in connector.create_message_streams(wanted).values() for each in one
        ]
        self._threads = [
            threading.Thread(target=self._read, args=(each,), daemon=True) for each in streams
        ]
        for thread in self._threads:
            thread.start()

    def count(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.found)

    def stop(self) -> None:
        self._stopped.set()
        self._watcher.join()
        self._connector.shutdown()
        for thread in self._threads:
            thread.join(30)

    def _watch(self) -> None:
        while not self._stopped.wait(0.01):
            metrics = self._connector.metrics()
            if metrics.consumer.fetched_bytes:
                self.taken_at_first = metrics.taken
                return

    def _read(self, stream: MessageStream) -> None:
        while True:
            try:
                for message in stream:
                    self.found.append((message.topic, message.partition))
                return
            except Exception as error:
                self.errors.append(error)


@pytest.fixture
def tree(connect: str, make_session: Any) -> Session:
    """Somebody else in the same tree."""
    session: Session = make_session(connect)
    return session


@pytest.fixture
def join(cluster: Cluster, eventually: Any, tree: Session) -> Iterator[Join]:
    """Makes members of a group; topics a and b have 4 partitions of 10 messages each."""
    broker = cluster.broker()
    ten = encode_message_set([b"%d" % number for number in range(10)])
    with SyncProducer("127.0.0.1", broker.port) as producer:
        produces = [ProduceRequest(topic, number, ten) for topic in "ab" for number in range(4)]
        producer.send_acknowledged(produces, Acks.FLUSHED)
    eventually(lambda: tree.children("/brokers/topics") == ["a", "b"])
    members: list[Member] = []

    def start() -> Member:
        members.append(Member(cluster.consumer(consumer_timeout=None), {"a": 1, "b": 1}))
        return members[-1]

    yield start
    for each in members:
        each.stop()


BAD_OFFSETS = [b"", b"abc", b"\xff" * 1_000_000, b"9" * 5000]


@pytest.mark.parametrize("value", BAD_OFFSETS, ids=["empty", "text", "megabyte", "digits"])
def test_a_bad_offset_costs_its_partition(
    join: Join, tree: Session, eventually: Any, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/consumers/g/offsets/a/0-1"
    tree.put(path, value)
    member = join()
    eventually(lambda: len(member.found) == 70 and member.errors)
    assert member.count("b") == 40
    (error,) = member.errors
    assert isinstance(error, HermesError)
    assert path in str(error)
    assert len(str(error)) < 1000
    lines = [each.getMessage() for each in caplog.records if path in each.getMessage()]
    assert len(lines) == 1
    assert len(lines[0]) < 1000
    tree.put(path, b"0")  # mended, and found so without being told
    eventually(lambda: len(member.found) == 80)
    assert len(member.errors) == 1


def test_a_node_that_must_not_be_read_costs_its_partition(
    join: Join, tree: Session, eventually: Any
) -> None:
    from kazoo.security import make_acl

    nobody = make_acl("digest", "nobody:nothing", all=True)
    path = "/consumers/g/offsets/b/0-2"
    tree.ensure_path("/consumers/g/offsets/b")
    tree.call(tree._client.create_async, path, b"0", acl=[nobody])
    member = join()
    eventually(lambda: len(member.found) == 70 and member.errors)
    assert path in str(member.errors[0])


def test_a_partition_owned_for_good_by_nobody_is_said(
    join: Join, tree: Session, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/consumers/g/owners/a/0-1"
    tree.put(path, b"nobody")
    member = join()
    eventually(lambda: len(member.found) == 70)
    said = f"group 'g': {path}: 'nobody' is registered without a session, and so for good"
    eventually(lambda: caplog.text.count(said) == 1)
    tree.delete(path, -1)
    eventually(lambda: len(member.found) == 80)
    assert caplog.text.count(said) == 1
    assert not member.errors


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/brokers/ids/abc", b"x:127.0.0.1:1"),
        ("/brokers/ids/007", b"x:127.0.0.1:1"),
        ("/brokers/ids/7", b"\xff" * 100_000),
        ("/brokers/topics/a/5", b"nan"),
        ("/brokers/topics/a/5", b""),
        ("/brokers/topics/a/0000", b"7"),
        ("/brokers/topics/b/5", b"2147483647"),
        ("/brokers/topics/b/5", b"100000"),
        ("/consumers/g/ids/evil", b"\xff\xfe"),
        ("/consumers/g/ids/evil", b""),
        ("/consumers/g/ids/evil", b'{"a": 100000}'),
        ("/consumers/g/ids/evil", b"*1*((("),
        ("/consumers/g/ids/evil", b"*1*(a+)+x"),
        ("/consumers/g/offsets/a/elsewhere", b"7"),
        ("/consumers/g/owners/a/elsewhere", b"7"),
    ],
)
def test_other_bad_nodes_stop_neither_members_nor_producers(
    join: Join, tree: Session, eventually: Any, connect: str, path: str, value: bytes
) -> None:
    tree.put(path, value)
    first = join()
    eventually(lambda: len(first.found) == 80)
    second = join()  # everybody rebalances
    eventually(lambda: len(tree.children("/consumers/g/ids")) - ("/ids/evil" in path) == 2)
    with Producer(
        ProducerConfig(zookeeper_connect=connect, acks="flushed", partitioner="round-robin")
    ) as producer:
        for topic in ("a", "b"):
            for number in range(8):
                producer.send(topic, [b"%d" % number])
    eventually(lambda: len(first.found) + len(second.found) >= 96)
    assert not first.errors
    assert not second.errors


def test_partitions_that_a_broker_only_claims_hold_up_nobody_else_s(
    join: Join, tree: Session, eventually: Any
) -> None:
    """Of ten thousand, none has a log: those of the other topic are read meanwhile."""
    tree.put("/brokers/ids/9", b"x:127.0.0.1:9")
    tree.put("/brokers/topics/a/9", b"10000")
    member = join()
    eventually(lambda: member.count("b") == 40 and member.count("a") == 40)
    taken = eventually(lambda: member.taken_at_first)
    assert taken < 10_008, "all were taken before any message came"
