"""Connections from a broker to another, over sockets: with the security that listeners have."""

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from typing import Any

import pytest
from kafka_bench import messages
from kafka_raw import KafkaConversation, parts
from kio.serial import entity_reader, entity_writer
from planted_secrets import planted
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool

from hermes.errors import (
    BrokerNotReachedError,
    BrokerNotTrustedError,
    BrokerUnavailableError,
    NotAuthenticatedError,
    RemoteProtocolError,
)
from hermes.kafka.other_brokers import OtherBroker
from hermes.kafka.outgoing import OutgoingConnection, OutgoingLimits
from hermes.protocol.kafka_requests import API_VERSIONS, KafkaRequest
from hermes.protocol.record_batches import decode_header
from hermes.protocol.records import Record, encode_batch, iterate_records
from hermes.reactors import make_reactor, release_reactor
from hermes.security import ClientSecurity
from hermes.testing import RunningBroker, running_broker

PASSWORD = planted("the other broker's alice")
KAFKA = {"kafka_listen": "tcp:0:interface=127.0.0.1", "topics": {"clicks": {"format": "kafka"}}}


class Side:
    """This broker's side: a reactor of its own, and what it may leave behind."""

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor

    def reach(
        self, address: str | None, security: ClientSecurity, **limits: Any
    ) -> "Deferred[OutgoingConnection]":
        assert address is not None
        host, port = address.rsplit(":", 1)
        in_thread = partial(deferToThreadPool, self.reactor, self.reactor.getThreadPool())
        other = OtherBroker(
            self.reactor, host, int(port), in_thread, security, OutgoingLimits(**limits)
        )
        return other.connect()

    async def ask(
        self, connection: OutgoingConnection, name: str, version: int, **given: Any
    ) -> Any:
        kind = getattr(messages(name, version, "request"), f"{name}Request")
        buffer = BytesIO()
        entity_writer(kind)(buffer, kind(**given))
        request = KafkaRequest(kind.__api_key__, version, buffer.getvalue(), kind.__flexible__)
        body = bytes(await connection.ask(request))
        answer = getattr(messages(name, version, "response"), f"{name}Response")
        entity, size = entity_reader(answer)(body, 0)
        assert size == len(body)
        return entity

    async def fetch(
        self,
        connection: OutgoingConnection,
        offset: int,
        wait_ms: int = 60_000,
        topic_id: Any = None,
    ) -> list[bytes | None]:
        """The next messages of partition 0, once there are any; of a topic by its id if given."""
        version = 12 if topic_id is None else 18
        make = parts("Fetch", version)
        wanted = make.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        answer = await self.ask(
            connection,
            "Fetch",
            version,
            max_wait=make.timeout(wait_ms),
            min_bytes=1,
            topics=(make.FetchTopic(topic="clicks", topic_id=topic_id, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        (part,) = answer.responses[0].partitions
        assert part.error_code.value == 0
        if not part.records:
            return []
        records = iterate_records(part.records, decode_header(part.records, 0), 0)
        return [each.value for each in records if each.offset >= offset]


def pool_threads() -> set[threading.Thread]:
    """The threads of reactors' own pools; those of the broker have other names."""
    return {each for each in threading.enumerate() if "twisted.internet.reactor" in each.name}


def run(main: Callable[[Side], Awaitable[None]]) -> None:
    """Run a coroutine on a reactor; nothing of it may be left but the reactor's own."""
    before = pool_threads()
    reactor = make_reactor()
    own = reactor.getReaders()
    failures: list[Any] = []
    left: list[Any] = []

    async def all_of_it() -> None:
        try:
            await main(Side(reactor))
        finally:
            await deferLater(reactor, 0)  # what is aborted ends in the next turn

    def end(_: object) -> None:
        left.extend(reactor.getDelayedCalls())
        left.extend(each for each in reactor.getReaders() if each not in own)
        left.extend(reactor.getWriters())
        reactor.stop()

    def start() -> None:
        Deferred.fromCoroutine(all_of_it()).addErrback(failures.append).addBoth(end)

    try:
        reactor.callWhenRunning(start)
        reactor.run(installSignalHandlers=False)
    finally:
        release_reactor(reactor)
    for each in failures:
        each.raiseException()
    assert left == []
    assert pool_threads() <= before


@contextmanager
def broker(**security: Any) -> Iterator[RunningBroker]:
    with running_broker(settings=KAFKA, **security) as running:
        yield running


def own(running: RunningBroker, name: str | None = None) -> ClientSecurity:
    settings: Mapping[str, Any] = running.client_settings(name)
    return ClientSecurity(**settings)


KINDS = {
    "plain": ({}, None),
    "users": ({"users": {"alice": PASSWORD}}, "alice"),
    "tls": ({"tls": True}, None),
    "tls and users": ({"tls": True, "users": {"alice": PASSWORD}}, "alice"),
    "certificates": ({"certificates": ["broker-2"]}, "broker-2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_broker_holds_another_fetches(kind: str) -> None:
    options, name = KINDS[kind]
    values = [b"%d" % number for number in range(100)]

    async def main(side: Side) -> None:
        connection = await side.reach(running.bootstrap_servers, own(running, name))
        assert connection.versions[1] == range(4, 19)
        make = parts("Metadata", 13)
        wanted = make.MetadataRequestTopic(name="clicks", topic_id=None)
        known = await side.ask(
            connection,
            "Metadata",
            13,
            topics=(wanted,),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        (topic,) = known.topics
        assert topic.name == "clicks"
        made = parts("Produce", 9)
        data = made.PartitionProduceData(
            index=0, records=encode_batch([record(*each) for each in enumerate(values)])
        )
        produced = await side.ask(
            connection,
            "Produce",
            9,
            acks=-1,
            timeout=made.timeout(30_000),
            transactional_id=None,
            topic_data=(made.TopicProduceData(name="clicks", partition_data=(data,)),),
        )
        assert produced.responses[0].partition_responses[0].error_code.value == 0
        # Several on their way: each gets its own answer.
        asked = [
            Deferred.fromCoroutine(side.fetch(connection, offset, topic_id=topic.topic_id))
            for offset in (0, 50, 99)
        ]
        found = await gatherResults(asked, consumeErrors=True)
        assert found == [values, values[50:], values[99:]]
        await connection.close()

    with broker(**options) as running:
        run(main)


def test_a_fetch_that_waits_is_answered_by_the_next_message() -> None:
    async def main(side: Side) -> None:
        connection = await side.reach(running.bootstrap_servers, own(running))
        fetching = Deferred.fromCoroutine(side.fetch(connection, 0))
        await deferToThreadPool(side.reactor, side.reactor.getThreadPool(), produce)
        assert await fetching == [b"a page"]
        await connection.close()

    def produce() -> None:
        with KafkaConversation(str(running.bootstrap_servers)) as conversation:
            conversation.produce("clicks", record(0, b"a page"))

    with broker() as running:
        run(main)


def record(offset: int, value: bytes) -> Record:
    return Record(offset, 1_800_000_000_000, None, value, ())


async def failure_of(attempt: "Deferred[OutgoingConnection]") -> BaseException:
    try:
        connection = await attempt
    except Exception as error:
        return error
    await connection.close()
    raise AssertionError("it was connected")


def test_who_is_not_trusted_or_not_known_gets_no_connection() -> None:
    async def main(side: Side) -> None:
        address = running.bootstrap_servers
        assert address is not None
        wrong = planted("not the other broker's alice's")
        ca = str(running.tls_ca)
        error = await failure_of(
            side.reach(address, ClientSecurity(tls_ca=ca, user="alice", password=wrong))
        )
        assert type(error) is NotAuthenticatedError
        assert f"{address} refused user 'alice'" in str(error)
        assert wrong not in str(error)
        error = await failure_of(side.reach(address, ClientSecurity(tls=True)))
        assert type(error) is BrokerNotTrustedError
        assert f"{address}: its certificate is not valid" in str(error)
        error = await failure_of(side.reach(address, ClientSecurity()))
        assert type(error) is BrokerNotReachedError
        assert "does it want TLS or a user?" in str(error)

    with broker(tls=True, users={"alice": PASSWORD}) as running:
        run(main)


def test_a_certificate_that_is_missing_is_told_by_the_first_answer() -> None:
    """By TLS 1.3 this side's handshake is over before the other refuses it."""

    async def main(side: Side) -> None:
        error = await failure_of(side.reach(running.bootstrap_servers, own(running)))
        assert type(error) is BrokerNotTrustedError
        assert "it wants a client's certificate" in str(error)

    with broker(certificates=["broker-2"]) as running:
        run(main)


def test_a_plain_port_is_no_tls() -> None:
    async def main(side: Side) -> None:
        security = ClientSecurity(tls=True)
        error = await failure_of(side.reach(running.bootstrap_servers, security))
        assert isinstance(error, BrokerNotReachedError)
        assert "TLS" in str(error)
        # Nor is that of Kafka 0.7 one of Kafka's protocol.
        error = await failure_of(side.reach(running.address, own(running)))
        assert isinstance(error, BrokerNotReachedError | RemoteProtocolError)

    with broker() as running:
        run(main)


def test_nobody_listens() -> None:
    async def main(side: Side) -> None:
        error = await failure_of(side.reach(address, ClientSecurity()))
        assert type(error) is BrokerNotReachedError
        assert f"no connection to {address}: " in str(error)
        assert "refused" in str(error)

    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        run(main)


@pytest.mark.parametrize("security", [ClientSecurity(), ClientSecurity(tls=True)])
def test_a_broker_that_accepts_and_says_nothing_is_given_up(security: ClientSecurity) -> None:
    async def main(side: Side) -> None:
        error = await failure_of(side.reach(address, security, connect_seconds=0.2))
        assert type(error) is BrokerNotReachedError
        assert "ready for requests, in 0.2 s" in str(error)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        run(main)


@pytest.mark.parametrize("kind", ["plain", "tls and users"])
def test_a_broker_that_stops_ends_its_connections(kind: str) -> None:
    options, name = KINDS[kind]

    async def main(side: Side) -> None:
        connection = await side.reach(running.bootstrap_servers, own(running, name))
        fetching = [Deferred.fromCoroutine(side.fetch(connection, 0)) for _ in range(3)]
        await deferToThreadPool(side.reactor, side.reactor.getThreadPool(), stack.close)
        for _, outcome in await DeferredList(fetching, consumeErrors=True):
            # A broker that stops lets those go that wait, before it closes the connection.
            assert outcome == [] or outcome.check(BrokerUnavailableError), outcome
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1"):
            await connection.ask(API_VERSIONS)
        assert not connection.is_open
        await connection.close()

    with ExitStack() as stack:
        running = stack.enter_context(broker(**options))
        run(main)
