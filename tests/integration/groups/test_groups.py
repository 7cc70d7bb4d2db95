"""Consumers in groups, on both servers and real brokers."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from group_cluster import Cluster
from server_process import ServerProcess

from hermes.client import Producer, ProducerConfig
from hermes.client.groups import (
    Blacklist,
    BrokerPartition,
    Consumer,
    ConsumerConfig,
    MessageStream,
    StreamMessage,
    Whitelist,
)
from hermes.coordination.sessions import Session
from hermes.errors import (
    ClientError,
    ConfigError,
    ConsumerTimeoutError,
    CoordinationUnavailableError,
    EncodingError,
    IdInUseError,
    InvalidNodeError,
    OffsetResetError,
)


class Reader(threading.Thread):
    """Iterates over a stream until it ends."""

    def __init__(self, stream: MessageStream) -> None:
        super().__init__(daemon=True)
        self.found: list[StreamMessage] = []
        self._stream = stream
        self.start()

    def run(self) -> None:
        for message in self._stream:
            self.found.append(message)


def take(stream: MessageStream, count: int) -> list[Any]:
    return [next(stream).message for _ in range(count)]


def stored(session: Session, group: str, topic: str) -> dict[str, int]:
    parent = f"/consumers/{group}/offsets/{topic}"
    nodes = {name: session.get(f"{parent}/{name}") for name in session.children(parent)}
    return {name: int(node.value) for name, node in nodes.items() if node}


def test_one_consumer_gets_everything_in_order(cluster: Cluster) -> None:
    cluster.broker()
    cluster.send("clicks", range(100))
    connector = cluster.consumer()
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    messages = [next(stream) for _ in range(100)]
    assert sorted(each.message for each in messages) == list(range(100))
    for partition in range(4):
        offsets = [each.offset for each in messages if each.partition == partition]
        assert offsets == sorted(offsets)
    cluster.send("clicks", [100])
    assert next(stream).message == 100
    connector.shutdown()
    with pytest.raises(StopIteration):
        next(stream)


def test_a_group_shares_and_groups_get_all(cluster: Cluster, eventually: Any) -> None:
    cluster.broker(0)
    cluster.broker(1)
    cluster.send("clicks", range(50))
    readers = []
    for group in ("a", "a", "b"):
        (stream,) = cluster.consumer(group=group).create_message_streams({"clicks": 1})["clicks"]
        readers.append(Reader(stream))
    cluster.send("clicks", range(50, 100))

    def values(*which: Reader) -> Counter[int]:
        return Counter(each.message for reader in which for each in list(reader.found))

    eventually(lambda: set(values(*readers[:2])) >= set(range(100)))
    eventually(lambda: set(values(readers[2])) >= set(range(100)))
    assert set(values(readers[2]).values()) == {1}
    assert set(values(*readers[:2]).values()) == {1}, "a clean join delivers nothing twice"


def test_registration_owners_and_offsets_are_those_of_kafka(
    cluster: Cluster, connect: str, make_session: Any
) -> None:
    cluster.broker()
    cluster.send("clicks", range(8))
    connector = cluster.consumer(consumer_id="g_vm-1795221927872-ea5722bf")
    (stream, _) = connector.create_message_streams({"clicks": 2})["clicks"]
    session = make_session(connect)
    member = session.get("/consumers/g/ids/g_vm-1795221927872-ea5722bf")
    assert member.value == b'{ "clicks": 2 }'
    owners = {
        name: session.get(f"/consumers/g/owners/clicks/{name}").value
        for name in session.children("/consumers/g/owners/clicks")
    }
    first, second = (b"g_vm-1795221927872-ea5722bf-%d" % number for number in (0, 1))
    assert owners == {"0-0": first, "0-1": first, "0-2": second, "0-3": second}
    found = [next(stream) for _ in range(4)]
    connector.commit_offsets()
    last = {f"0-{each.partition}": each.next_offset for each in found}
    assert {k: v for k, v in stored(session, "g", "clicks").items() if k in last} == last


def test_only_what_is_finished_is_committed(
    cluster: Cluster, connect: str, make_session: Any
) -> None:
    cluster.broker()
    cluster.send("clicks", range(40))
    first = cluster.consumer()
    (stream,) = first.create_message_streams({"clicks": 1})["clicks"]
    seen = take(stream, 10)
    first.shutdown()
    second = cluster.consumer()
    (stream,) = second.create_message_streams({"clicks": 1})["clicks"]
    again = take(stream, 31)
    assert sorted(seen[:9] + again) == list(range(40)), "the tenth was in the application's hands"
    assert seen[9] in again


def test_commit_offsets_takes_the_caller_s_word(cluster: Cluster) -> None:
    cluster.broker()
    cluster.send("clicks", range(8))
    with cluster.consumer(auto_commit=False) as first:
        (stream,) = first.create_message_streams({"clicks": 1})["clicks"]
        seen = take(stream, 5)
        first.commit_offsets()
        unseen = take(stream, 1)
    (stream,) = cluster.consumer().create_message_streams({"clicks": 1})["clicks"]
    rest = take(stream, 3)
    assert sorted(seen + rest) == list(range(8))
    assert unseen[0] in rest


def test_a_member_that_leaves_is_replaced_without_duplicates(
    cluster: Cluster, eventually: Any
) -> None:
    cluster.broker()
    cluster.send("clicks", range(40))
    connectors = [cluster.consumer() for _ in range(2)]
    streams = [each.create_message_streams({"clicks": 1})["clicks"][0] for each in connectors]
    eventually(lambda: all(len(each.partitions()) == 2 for each in streams))
    reader = Reader(streams[0])
    gone = take(streams[1], 5)
    streams[1].pause()  # nothing is in its hands but the fifth
    connectors[1].shutdown()
    eventually(lambda: len(streams[0].partitions()) == 4)
    cluster.send("clicks", range(40, 60))
    eventually(lambda: {each.message for each in reader.found} | set(gone) >= set(range(60)))
    counted = Counter([each.message for each in reader.found] + gone[:4])
    assert set(counted.values()) == {1}


def test_filters_choose_topics_also_later_ones(cluster: Cluster, eventually: Any) -> None:
    cluster.broker()
    cluster.send("click-a", [1])
    cluster.send("view-a", [2])
    (white,) = cluster.consumer(group="w").create_message_streams_by_filter(Whitelist("click.*"))
    (black,) = cluster.consumer(group="b").create_message_streams_by_filter(Blacklist("click.*"))
    assert take(white, 1) == [1]
    assert take(black, 1) == [2]
    cluster.send("click-b", [3])
    cluster.send("view-b", [4])
    assert (next(white)[:2], next(black)[:2]) == ((3, "click-b"), (4, "view-b"))


def test_streams_wait_pause_seek_and_time_out(cluster: Cluster, eventually: Any) -> None:
    cluster.broker()
    cluster.send("clicks", range(4))
    connector = cluster.consumer(consumer_timeout="300ms")
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    found = [eventually(lambda: _next(stream)) for _ in range(4)]
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    one = found[0]
    place = (one.topic, BrokerPartition(one.broker_id, one.partition))
    stream.pause(place)
    stream.seek(*place, one.offset)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
    stream.resume()
    assert eventually(lambda: _next(stream)) == one
    with pytest.raises(ClientError, match="does not own"):
        stream.seek("clicks", BrokerPartition(9, 9), 0)


def test_where_to_start_without_an_offset(cluster: Cluster, eventually: Any) -> None:
    cluster.broker()
    cluster.send("clicks", range(4))
    largest = cluster.consumer(group="l", auto_offset_reset="largest", consumer_timeout="500ms")
    (stream,) = largest.create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(ConsumerTimeoutError):
        next(stream)

    def sent_and_found() -> Any:  # again, where the consumer had not found the end by then
        cluster.send("clicks", [5])
        return _next(stream)

    assert eventually(sent_and_found).message == 5
    failing = cluster.consumer(group="f", auto_offset_reset="fail")
    (stream,) = failing.create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(OffsetResetError, match="no offset is stored"):
        next(stream)


def test_an_offset_out_of_range_is_reset_and_logged(
    cluster: Cluster, connect: str, make_session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.broker()
    cluster.send("clicks", range(4))
    session = make_session(connect)
    session.ensure_path("/consumers/g/offsets/clicks/0-0")
    session.set("/consumers/g/offsets/clicks/0-0", b"123456")
    (stream,) = cluster.consumer().create_message_streams({"clicks": 1})["clicks"]
    assert sorted(take(stream, 4)) == list(range(4))
    assert "clicks 0-0: 123456 is out of range; going on from the smallest offset, 0" in caplog.text


def test_a_stored_offset_that_is_no_number_is_a_clear_error(
    cluster: Cluster, connect: str, make_session: Any
) -> None:
    cluster.broker()
    cluster.send("clicks", range(4))
    session = make_session(connect)
    session.ensure_path("/consumers/g/offsets/clicks/0-2")
    session.set("/consumers/g/offsets/clicks/0-2", b"two")
    config = {"zookeeper_session_timeout": "1s"}
    (stream,) = cluster.consumer(**config).create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(InvalidNodeError, match=r"/consumers/g/offsets/clicks/0-2: .*'two'"):
        take(stream, 5)
    session.set("/consumers/g/offsets/clicks/0-2", b"0")
    assert take(stream, 1)


def test_a_decoder_that_refuses(cluster: Cluster, connect: str) -> None:
    cluster.broker()
    with Producer(ProducerConfig(zookeeper_connect=connect, acks="flushed")) as producer:
        producer.send("clicks", [b"{", b"7"])
    (stream,) = cluster.consumer().create_message_streams({"clicks": 1})["clicks"]
    with pytest.raises(EncodingError):
        next(stream)
    assert next(stream).message == 7


def test_a_session_that_expires_is_recovered_and_fenced(
    cluster: Cluster, eventually: Any, expire: Callable[[Session], None]
) -> None:
    cluster.broker()
    cluster.send("clicks", range(20))
    connector = cluster.consumer()
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    first = take(stream, 10)
    expire(connector._session)
    cluster.send("clicks", range(20, 30))
    rest: set[int] = set()
    eventually(lambda: rest.add(next(stream).message) or rest | set(first) == set(range(30)))


def test_a_zombie_can_not_commit_over_the_new_owner(
    cluster: Cluster, connect: str, eventually: Any, expire: Any, make_session: Any
) -> None:
    cluster.broker()
    cluster.send("clicks", range(20))
    zombie = cluster.consumer(auto_commit=False)
    (stream,) = zombie.create_message_streams({"clicks": 1})["clicks"]
    take(stream, 8)
    (claim, *_) = zombie._membership.claims()  # type: ignore[union-attr]
    ownership = zombie._membership._ownership  # type: ignore[union-attr]
    zombie._membership._stopping = True  # type: ignore[union-attr]
    zombie._membership.wake()  # type: ignore[union-attr]
    zombie._membership._thread.join()  # type: ignore[union-attr]
    session = make_session(connect)
    before = stored(session, "g", "clicks")
    expire(zombie._session)
    eventually(lambda: not claim.is_held())
    heir = cluster.consumer(auto_commit=False)
    heir.create_message_streams({"clicks": 1})
    eventually(lambda: zombie._session.session_id)
    assert not ownership.commit(claim, claim.finished + 1)
    claim.session_id = zombie._session.session_id  # even if it knew nothing of its end
    assert not ownership.commit(claim, claim.finished + 1)
    assert stored(session, "g", "clicks") == before


def test_nothing_is_handed_out_while_zookeeper_is_out_of_reach(
    own_server: ServerProcess, eventually: Any
) -> None:
    with ExitStack() as stack:
        cluster = Cluster(own_server.address, stack)
        cluster.broker()
        cluster.send("clicks", range(20))
        connector = cluster.consumer(
            zookeeper_session_timeout="1500ms", consumer_timeout="200ms", auto_commit=False
        )
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        found = {eventually(lambda: _next(stream)).message}
        claims = connector._membership.claims()  # type: ignore[union-attr]
        own_server.pause()
        eventually(lambda: not any(each.is_held() for each in claims))
        with pytest.raises(ConsumerTimeoutError):
            next(stream)
        own_server.resume()

        def all_came() -> bool:
            message = _next(stream)
            if message is not None:
                found.add(message.message)
            return found == set(range(20))

        eventually(all_came)


def test_a_server_that_restarts_changes_nothing_for_anybody(
    own_server: ServerProcess, make_session: Any, eventually: Any
) -> None:
    with ExitStack() as stack:
        cluster = Cluster(own_server.address, stack)
        cluster.broker()
        cluster.send("clicks", range(20))
        reader = Reader(cluster.consumer().create_message_streams({"clicks": 1})["clicks"][0])
        eventually(lambda: len(reader.found) == 20)
        own_server.kill()
        cluster.send("clicks", range(20, 40))  # brokers are known
        own_server.start()
        later = Reader(cluster.consumer().create_message_streams({"clicks": 1})["clicks"][0])
        cluster.send("clicks", range(40, 60))
        readers = (reader, later)

        def values() -> Counter[int]:
            return Counter(each.message for one in readers for each in list(one.found))

        eventually(lambda: set(values()) == set(range(60)))
        session = make_session(own_server.address)
        eventually(lambda: len(session.children("/consumers/g/ids")) == 2)
        eventually(lambda: session.children("/brokers/ids") == ["0"])
        eventually(lambda: len(session.children("/consumers/g/owners/clicks")) == 4)


def test_shutting_down_without_zookeeper_ends(own_server: ServerProcess) -> None:
    with ExitStack() as stack:
        cluster = Cluster(own_server.address, stack)
        cluster.broker()
        cluster.send("clicks", range(20))
        connector = cluster.consumer(zookeeper_session_timeout="500ms")
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        take(stream, 5)
        own_server.pause()
        connector.shutdown()
        with pytest.raises(StopIteration):
            next(stream)
        own_server.resume()


def _next(stream: MessageStream) -> StreamMessage | None:
    try:
        return next(stream)
    except ConsumerTimeoutError:
        return None


def test_the_listener_hears_before_partitions_go(cluster: Cluster, eventually: Any) -> None:
    heard: list[tuple[str, int]] = []

    class Listener:
        def before_release(self, partitions: Sequence[Any]) -> None:
            heard.append(("release", len(partitions)))
            raise ValueError("a listener's fault changes nothing")

        def after_take(self, partitions: Sequence[Any]) -> None:
            heard.append(("take", len(partitions)))

    cluster.broker()
    cluster.send("clicks", range(4))
    cluster.consumer(Listener()).create_message_streams({"clicks": 1})
    assert heard == [("take", 4)]
    cluster.consumer().create_message_streams({"clicks": 1})
    assert heard == [("take", 4), ("release", 2)]


def test_a_listener_commits_what_is_finished_also_when_its_consumer_is_shut_down(
    cluster: Cluster,
) -> None:
    class Listener:
        connector: Any = None

        def before_release(self, partitions: Sequence[Any]) -> None:
            self.connector.commit_offsets()

        def after_take(self, partitions: Sequence[Any]) -> None: ...

    listener = Listener()
    cluster.broker()
    cluster.send("clicks", range(8))
    listener.connector = first = cluster.consumer(listener, auto_commit=False)
    (stream,) = first.create_message_streams({"clicks": 1})["clicks"]
    *seen, in_hands = take(stream, 5)
    first.shutdown()
    (stream,) = cluster.consumer().create_message_streams({"clicks": 1})["clicks"]
    rest = take(stream, 4)
    assert sorted(seen + rest) == list(range(8)), "nothing that was finished comes again"
    assert in_hands in rest


def test_a_broker_that_comes_later_is_shared_out(cluster: Cluster, eventually: Any) -> None:
    connector = cluster.consumer()
    (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
    reader = Reader(stream)
    cluster.broker()
    cluster.send("clicks", range(4))
    eventually(lambda: {each.message for each in reader.found} == set(range(4)))


def test_one_id_for_two_is_an_error(cluster: Cluster) -> None:
    cluster.consumer(consumer_id="me").create_message_streams({"clicks": 1})
    other = cluster.consumer(consumer_id="me", zookeeper_session_timeout="2s")
    with pytest.raises(IdInUseError, match="'me' is in use in group 'g'"):
        other.create_message_streams({"clicks": 1})


def test_wrong_use_is_a_clear_error(cluster: Cluster) -> None:
    connector = cluster.consumer()
    for streams in ({}, {"a": 0}, {'a"b': 1}):
        with pytest.raises(ConfigError):
            connector.create_message_streams(streams)
    connector.create_message_streams({"a": 1})
    with pytest.raises(ClientError, match="once"):
        connector.create_message_streams({"b": 1})
    connector.shutdown()
    with pytest.raises(ClientError, match="shut down"):
        connector.commit_offsets()
    with pytest.raises(CoordinationUnavailableError):
        Consumer.create(
            ConsumerConfig(
                group="g", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout="100ms"
            )
        )
