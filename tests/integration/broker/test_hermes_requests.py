"""The requests beyond 0.7 through real sockets: types 64 to 70, in literal bytes."""

import struct
from collections.abc import Callable
from pathlib import Path

from hermes_testkit import (
    BrokerProcess,
    RawClient,
    fetch,
    frame,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
    waiting_fetch,
)

StartBroker = Callable[..., BrokerProcess]

HELLO = message(b"hello")  # 15 bytes


def entries(answer: bytes) -> list[tuple[int, int, int]]:
    """The entries of an acknowledged produce's answer: (partition, error, offset)."""
    size, error, count = struct.unpack_from(">ihh", answer)
    assert size == len(answer) - 4
    assert error == 0
    return [struct.unpack_from(">ihq", answer, 8 + 14 * n) for n in range(count)]


def waited(answer: bytes) -> list[tuple[int, int, bytes]]:
    """The entries of a waiting fetch's answer: (error, high watermark, messages)."""
    _, error, count = struct.unpack_from(">ihh", answer)
    assert error == 0
    found, position = [], 8
    for _ in range(count):
        code, mark, size = struct.unpack_from(">hqi", answer, position)
        position += 14
        found.append((code, mark, answer[position : position + size]))
        position += size
    assert position == len(answer)
    return found


def append_times_request(
    topic: bytes, partition: int, start: int, end: int, interval_ms: int
) -> bytes:
    head = struct.pack(f">hhh{len(topic)}s", 69, 0, len(topic), topic)
    return frame(head + struct.pack(">iqqq", partition, start, end, interval_ms))


def append_times(
    client: RawClient, topic: bytes, partition: int, start: int, end: int, interval_ms: int
) -> tuple[int, int, list[tuple[int, int]]]:
    """Error, end of the range, and runs (end offset, time) of an answer."""
    answer = client.call(append_times_request(topic, partition, start, end, interval_ms))
    error, stop, count = struct.unpack_from(">hqi", answer, 4)
    runs = [struct.unpack_from(">qq", answer, 18 + 16 * n) for n in range(count)]
    assert len(answer) == 18 + 16 * count
    return error, stop, runs


def boundary(client: RawClient, topic: bytes, partition: int, offset: int) -> tuple[int, int]:
    body = struct.pack(f">hhh{len(topic)}siq", 67, 0, len(topic), topic, partition, offset)
    answer = client.call(frame(body))
    assert len(answer) == 14
    return struct.unpack_from(">hq", answer, 4)


def test_flushed_means_visible_and_names_offset_and_partition(start_broker: StartBroker) -> None:
    broker = start_broker(num_partitions=3, flush_messages=10**6, flush_interval="1h")
    with broker.connect() as client:
        assert entries(client.call(produce_acknowledged(("t", 1, HELLO)))) == [(1, 0, 0)]
        assert entries(client.call(produce_acknowledged(("t", 1, HELLO)))) == [(1, 0, 15)]
        assert client.call(fetch("t", 1, 0))[6:] == HELLO * 2
        ((partition, error, offset),) = entries(client.call(produce_acknowledged(("r", -1, HELLO))))
        assert partition in (0, 1, 2)
        assert (error, offset) == (0, 0)


def test_written_is_answered_before_the_flush(start_broker: StartBroker) -> None:
    broker = start_broker(flush_messages=10**6, flush_interval="1h")
    with broker.connect() as client:
        assert entries(client.call(produce_acknowledged(("t", 0, HELLO), acks=1))) == [(0, 0, 0)]
        assert client.call(fetch("t", 0, 0)) == bytes.fromhex("000000020000")


def test_each_entry_has_its_own_outcome(start_broker: StartBroker) -> None:
    broker = start_broker(num_partitions=2, max_message_bytes=100)
    bad_crc = HELLO[:-1] + b"X"
    with broker.connect() as client:
        answer = client.call(
            produce_acknowledged(
                ("t", 0, HELLO),
                ("t", 2, HELLO),
                ("t", 1, bad_crc),
                ("t", 1, message(bytes(101))),
                ("a/b", 0, HELLO),
                ("t", 0, HELLO),
            )
        )
        assert entries(answer) == [
            (0, 0, 0),
            (2, 3, -1),
            (1, 2, -1),
            (1, 64, -1),
            (0, 66, -1),
            (0, 0, 15),
        ]
        assert client.alive()


def test_unknown_levels_and_versions_are_answered(start_broker: StartBroker) -> None:
    broker = start_broker()
    unsupported = struct.pack(">ih", 2, 68)
    with broker.connect() as client:
        assert client.call(produce_acknowledged(("t", 0, HELLO), acks=3)) == unsupported
        for kind in range(64, 82):
            assert client.call(frame(struct.pack(">hh", kind, 1))) == unsupported
        assert client.alive()
        client.send(frame(struct.pack(">hh", 99, 0)))
        assert client.closed()


def test_topics_are_not_created_when_that_is_off(start_broker: StartBroker) -> None:
    broker = start_broker(auto_create_topics=False, topics={"known": {"partitions": 1}})
    with broker.connect() as client:
        answer = client.call(produce_acknowledged(("known", 0, HELLO), ("other", 0, HELLO)))
        assert entries(answer) == [(0, 0, 0), (0, 65, -1)]
        client.send(produce("other", 0, HELLO))
        assert client.closed()
    assert not (broker.log_dir / "other-0").exists()


def test_pipelined_acknowledgements_come_in_order_and_before_a_later_fetch(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with broker.connect() as client:
        client.send(
            produce_acknowledged(("t", 0, HELLO)) * 200
            + fetch("t", 0, 0)
            + produce_acknowledged(("t", 0, HELLO))
        )
        offsets = [entries(client.answer())[0][2] for _ in range(200)]
        assert offsets == [15 * n for n in range(200)]
        assert client.answer()[6:] == HELLO * 200
        assert entries(client.answer()) == [(0, 0, 3000)]


def test_a_waiting_fetch_gets_a_message_when_it_comes(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.connect() as consumer, broker.connect() as producer:
        consumer.send(waiting_fetch(("t", 0, 0, 1000), ("u", 0, 0, 1000)))
        assert producer.alive()
        assert not consumer.readable()
        producer.send(produce("u", 0, HELLO))
        assert waited(consumer.answer()) == [(0, -1, b""), (0, 15, HELLO)]


def test_a_waiting_fetch_waits_for_enough(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.connect() as consumer, broker.connect() as producer:
        consumer.send(waiting_fetch(("t", 0, 0, 1000), min_bytes=45))
        for _ in range(2):
            producer.call(produce_acknowledged(("t", 0, HELLO)))
        assert producer.alive()
        assert not consumer.readable()
        producer.call(produce_acknowledged(("t", 0, HELLO)))
        assert waited(consumer.answer()) == [(0, 45, HELLO * 3)]


def test_a_waiting_fetch_ends_with_its_time_or_an_error(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.connect() as client:
        client.call(produce_acknowledged(("t", 0, HELLO)))
        assert waited(client.call(waiting_fetch(("t", 0, 15, 100), max_wait_ms=20))) == [
            (0, 15, b"")
        ]
        assert waited(client.call(waiting_fetch(("t", 0, 16, 100)))) == [(1, 15, b"")]
        assert waited(client.call(waiting_fetch(("t", 9, 0, 100)))) == [(3, -1, b"")]
        assert waited(client.call(waiting_fetch(("a/b", 0, 0, 100)))) == [(-1, -1, b"")]


def test_a_lost_consumer_leaves_no_waiting_fetch(start_broker: StartBroker) -> None:
    broker = start_broker()
    with broker.connect() as client:
        client.send(waiting_fetch(("t", 0, 0, 100), max_wait_ms=3_600_000))
    with broker.connect() as client:
        assert client.alive()
        client.call(produce_acknowledged(("t", 0, HELLO)))
        assert client.alive()
    assert broker.stop() == 0


def test_boundaries(start_broker: StartBroker) -> None:
    broker = start_broker(segment_bytes=40)
    with broker.connect() as client:
        for _ in range(10):
            client.call(produce_acknowledged(("t", 0, HELLO)))
        assert len(list((broker.log_dir / "t-0").glob("*.kafka"))) > 2
        for offset in range(151):
            assert boundary(client, b"t", 0, offset) == (0, offset // 15 * 15)
        assert boundary(client, b"t", 0, 10**12)[0] in (0, 1)
        assert boundary(client, b"t", 0, -1)[0] == 1
        assert boundary(client, b"t", 5, 0)[0] == 3
        assert boundary(client, b"unknown", 0, 0)[0] == 1


def test_append_times_of_a_segment_that_kafka_began(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    log_dir = tmp_path / "prepared"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "t-0" / f"{0:020d}.kafka").write_bytes(HELLO * 3)
    (log_dir / ".kafka_cleanshutdown").touch()
    broker = start_broker(log_dir=str(log_dir))
    for _ in range(2):
        with broker.connect() as client:
            assert append_times(client, b"t", 0, 0, 45, 1) == (0, 45, [(45, -1)])
            client.call(produce_acknowledged(("t", 0, HELLO)))
            # Rounded to 36 million years any time is the first, which needs no clock to check.
            _, end, told = append_times(client, b"t", 0, 0, 10**12, 1 << 60)
            assert (told[0], told[-1]) == ((45, -1), (end, 0))
            assert len(told) == 2
            _, _, ((last, exact_ms),) = append_times(client, b"t", 0, end - 15, end, 1)
            hour = append_times(client, b"t", 0, end - 15, end, 3_600_000)
            assert (last, hour) == (end, (0, end, [(end, exact_ms - exact_ms % 3_600_000)]))
            assert exact_ms > 0
            for partition, start, interval_ms, code in [
                (0, -1, 1, 1),
                (0, end + 1, 1, 1),
                (7, 0, 1, 3),
                (0, 0, 0, -1),
            ]:
                refused = struct.pack(">ih", 2, code)
                request = append_times_request(b"t", partition, start, end, interval_ms)
                assert client.call(request) == refused
        assert broker.stop() == 0
        broker.start()
    with broker.connect() as client:
        assert append_times(client, b"unknown", 0, 0, 10, 1) == (0, 0, [])
        unwritten = append_times_request(b"unknown", 0, 1, 10, 1)
        assert client.call(unwritten) == struct.pack(">ih", 2, 1)
        illegal = append_times_request(b"a/b", 0, 0, 10, 1)
        assert client.call(illegal) == struct.pack(">ih", 2, 66)


def test_metadata_tells_what_there_is(start_broker: StartBroker) -> None:
    broker = start_broker(broker_id=7, num_partitions=2, topics={"wide": {"partitions": 5}})
    with broker.connect() as client:
        client.call(produce_acknowledged(("wide", 3, HELLO)))
        answer = client.call(frame(struct.pack(">hhh", 66, 0, -1)))
        error, broker_id, length = struct.unpack_from(">hih", answer, 4)
        assert (error, broker_id) == (0, 7)
        position = 12 + length
        limits = struct.unpack_from(">iii", answer, position)
        assert limits == (100 * 1024 * 1024, 1_000_000, 2)
        (types,) = struct.unpack_from(">h", answer, position + 12)
        versions = dict(
            struct.unpack_from(">hh", answer, position + 14 + 4 * n) for n in range(types)
        )
        assert set(versions) == {0, 1, 2, 3, 4, *range(64, 84)}
        position += 14 + 4 * types
        count, length = struct.unpack_from(">ih", answer, position)
        assert (count, answer[position + 6 : position + 6 + length]) == (1, b"wide")
        rest = struct.unpack_from(">hii iqqq iqqq", answer, position + 6 + length)
        assert rest == (0, 5, 2, *(0, 0, 0, 0), *(3, 0, 15, 15)), "the first is there at once"
        assert answer[position + 6 + length + 66 :] == b"\0", "its format is 0.7's"
        unknown = frame(struct.pack(">hhhh2s", 66, 0, 1, 2, b"xy"))
        assert client.call(unknown).endswith(b"xy" + struct.pack(">hiib", 65, 2, 0, 0))


def test_a_deleted_topic_is_gone_and_can_be_made_again(start_broker: StartBroker) -> None:
    broker = start_broker(segment_bytes=20)
    delete = frame(struct.pack(">hhh1s", 68, 0, 1, b"t"))
    with broker.connect() as client:
        assert client.call(delete) == struct.pack(">ih", 2, 65)
        for _ in range(4):
            client.call(produce_acknowledged(("t", 0, HELLO)))
        assert client.call(delete) == struct.pack(">ih", 2, 0)
        assert not (broker.log_dir / "t-0").exists()
        assert client.call(fetch("t", 0, 0)) == bytes.fromhex("000000020000")
        client.send(produce("t", 0, HELLO))
        wait_until_visible(client, "t", 0, 15)
        assert client.call(fetch("t", 0, 0))[6:] == HELLO
    assert broker.stop() == 0
