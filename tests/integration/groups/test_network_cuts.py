"""The network fails at the worst moment: while a node is created that says who we are.

Either the server never heard of it, or it has made the node and the answer was lost. The session
goes on, so the node that was made is ours, and must be found to be ours.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest
from cutting_proxy import CuttingProxy
from server_process import ServerProcess

from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Connector, Consumer, ConsumerConfig
from hermes.coordination.registration import BrokerRegistration
from hermes.coordination.sessions import Session
from hermes.testing import running_broker

Lost = Literal["request", "reply"]

pytestmark = pytest.mark.parametrize("lost", ["request", "reply"])


@pytest.fixture
def proxy(shared_server: ServerProcess) -> Iterator[CuttingProxy]:
    made = CuttingProxy(shared_server.port)
    yield made
    made.stop()


@pytest.fixture
def chroot(connect: str) -> str:
    """Of this test, made already."""
    return "/" + connect.partition("/")[2]


@pytest.fixture
def direct(connect: str, make_session: Callable[..., Session]) -> Session:
    """A session whose connection is never cut."""
    return make_session(connect)


@pytest.fixture
def consumer(proxy: CuttingProxy, chroot: str) -> Iterator[Callable[..., Connector]]:
    with ExitStack() as stack:

        def make() -> Connector:
            config = ConsumerConfig(
                group="g",
                consumer_id="me",
                zookeeper_connect=proxy.address + chroot,
                consumer_timeout="60s",
            )
            return stack.enter_context(Consumer.create(config))

        yield make


@pytest.fixture
def clicks(connect: str, direct: Session, eventually: Any) -> Iterator[None]:
    """A broker with ten messages in two partitions; its own connection is never cut."""
    settings = {"coordination": "zookeeper", "zookeeper_connect": connect, "num_partitions": 2}
    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", partitioner="round-robin", num_retries=5
    )
    with running_broker(None, settings):
        with Producer(config) as producer:
            producer.send("clicks", b"0")
            eventually(lambda: direct.get("/brokers/topics/clicks/0"))
            for number in range(1, 10):
                producer.send("clicks", b"%d" % number)
        yield


def assert_kept(proxy: CuttingProxy, direct: Session, path: str, lost: Lost) -> None:
    """A node that was made although the answer was lost has been kept, not made anew."""
    if lost == "reply":
        made = direct.call(direct._client.exists_async, path).czxid
        assert made == proxy.swallowed_zxid


@pytest.mark.parametrize("path", ["/brokers/ids/0", "/brokers/topics/clicks/0"])
def test_a_broker_registers(
    proxy: CuttingProxy, chroot: str, direct: Session, eventually: Any, lost: Lost, path: str
) -> None:
    registration = BrokerRegistration(
        0, "127.0.0.1", 9092, {"clicks": 2}, connect=proxy.address + chroot
    )
    proxy.cut_at_create(chroot + path, lost)
    registration.start()
    try:
        assert proxy.was_cut.wait(60)
        node = eventually(lambda: direct.get(path))
        eventually(lambda: registration._session.session_id == node.owner)
        eventually(lambda: direct.get("/brokers/topics/clicks/0"))
        assert_kept(proxy, direct, path, lost)
    finally:
        registration.stop()
    assert direct.get("/brokers/ids/0") is None
    assert direct.get("/brokers/topics/clicks/0") is None


def test_a_broker_registers_again_after_its_session_expired(
    proxy: CuttingProxy,
    chroot: str,
    direct: Session,
    eventually: Any,
    expire: Callable[[Session], None],
    lost: Lost,
) -> None:
    registration = BrokerRegistration(0, "127.0.0.1", 9092, {}, connect=proxy.address + chroot)
    registration.start()
    try:
        before = direct.get("/brokers/ids/0")
        assert before is not None
        proxy.cut_at_create(chroot + "/brokers/ids/0", lost)
        expire(registration._session)
        assert proxy.was_cut.wait(60)

        def is_back() -> bool:
            node = direct.get("/brokers/ids/0")
            session_id = registration._session.session_id
            return node is not None and before.owner != node.owner == session_id

        eventually(is_back)
    finally:
        registration.stop()


def test_a_consumer_joins(
    clicks: None,
    proxy: CuttingProxy,
    chroot: str,
    direct: Session,
    consumer: Callable[[], Connector],
    lost: Lost,
) -> None:
    connector = consumer()
    session_id = connector._session.session_id
    proxy.cut_at_create(chroot + "/consumers/g/ids/me", lost)
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    assert sorted(int(next(stream).message) for _ in range(10)) == list(range(10))
    assert proxy.was_cut.is_set()
    member = direct.get("/consumers/g/ids/me")
    assert member is not None
    assert member.owner == connector._session.session_id == session_id, "it is the same session"
    assert_kept(proxy, direct, "/consumers/g/ids/me", lost)


def test_a_partition_is_taken(
    clicks: None,
    proxy: CuttingProxy,
    chroot: str,
    direct: Session,
    consumer: Callable[[], Connector],
    lost: Lost,
) -> None:
    connector = consumer()
    session_id = connector._session.session_id
    proxy.cut_at_create(chroot + "/consumers/g/owners/clicks/0-1", lost)
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    found = [next(stream) for _ in range(10)]
    assert sorted(int(each.message) for each in found) == list(range(10))
    assert proxy.was_cut.is_set()
    for partition in ("0-0", "0-1"):
        owner = direct.get(f"/consumers/g/owners/clicks/{partition}")
        assert owner is not None
        assert (owner.value, owner.owner) == (b"me-0", session_id)
    # What is owned through a lost answer can be committed like any other.
    connector.commit_offsets()
    for partition in (0, 1):
        stored = direct.get(f"/consumers/g/offsets/clicks/0-{partition}")
        last = max(each.next_offset for each in found if each.partition == partition)
        assert stored is not None
        assert stored.value == b"%d" % last


def test_an_offset_is_stored_for_the_first_time(
    clicks: None,
    proxy: CuttingProxy,
    chroot: str,
    direct: Session,
    consumer: Callable[[], Connector],
    lost: Lost,
) -> None:
    connector = consumer()
    proxy.cut_at_create(chroot + "/consumers/g/offsets/clicks/0-0", lost)
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    assert sorted(int(next(stream).message) for _ in range(10)) == list(range(10))
    assert proxy.was_cut.is_set()
