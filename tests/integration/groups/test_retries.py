"""Messages that fail, on both coordination servers and real brokers."""

import asyncio
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from group_cluster import Cluster
from kills_under_a_producer import RestartableBroker
from retry_rounds import check_nothing_is_lost
from retrying_process import RetryingProcess, letters_in

from hermes import aio
from hermes.cli import program
from hermes.client import Producer, ProducerConfig, RetryMetrics, SyncProducer
from hermes.client.groups import ConsumerConfig
from hermes.client.retrying import RetryingConsumer, RetryMessage
from hermes.coordination.sessions import Session
from hermes.errors import ClientError, ConfigError, ConsumerTimeoutError, MessageRejectedError
from hermes.protocol import encode_message_set
from hermes.testing import RunningBroker, running_broker


class Handling:
    """Runs a consumer in a thread, and keeps what it handled.

    Attributes:
        seen: each message with the time when it was handed over.
        failing: called with each message; raises what is to be raised.
    """

    def __init__(self, consumer: RetryingConsumer, failing: Callable[[RetryMessage], None]) -> None:
        self.consumer = consumer
        self.seen: list[tuple[RetryMessage, float]] = []
        self.failing = failing
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run(self._handle)
        except BaseException as error:
            self.error = error

    def _handle(self, message: RetryMessage) -> None:
        self.seen.append((message, time.monotonic()))
        self.failing(message)

    def stop(self) -> None:
        self.consumer.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.consumer.close()

    def values(self) -> list[Any]:
        return [message.message for message, _ in list(self.seen)]

    def attempts(self) -> Counter[Any]:
        return Counter(self.values())


@contextmanager
def handling(
    connect: str, failing: Callable[[RetryMessage], None] = lambda message: None, **options: Any
) -> Iterator[Handling]:
    settings = {"decoder": "json", "fetch_wait": "20ms", **options.pop("settings", {})}
    config = ConsumerConfig(group="g", zookeeper_connect=connect, **settings)
    consumer = RetryingConsumer(config, ["t"], **{"delays": ["50ms", "150ms"], **options})
    running = Handling(consumer, failing)
    try:
        yield running
    finally:
        running.stop()


def offsets(session: Session, topic: str = "t") -> dict[str, int]:
    parent = f"/consumers/g/offsets/{topic}"
    nodes = {name: session.get(f"{parent}/{name}") for name in session.children(parent)}
    return {name: int(node.value) for name, node in nodes.items() if node}


def fail(message: RetryMessage) -> None:
    raise ValueError(f"no {message.message}")


def dead(broker: RunningBroker) -> dict[Any, Any]:
    return {
        json.loads(each.payload): each for each in letters_in(broker.host, broker.port, "t.g.dead")
    }


def test_what_fails_is_handled_again_after_delays_that_grow_and_is_dead_at_last(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    broker = cluster.broker()
    cluster.send("t", range(20))

    def fails(message: RetryMessage) -> None:
        if message.message in (3, 7) or (message.message == 11 and message.attempt == 1):
            fail(message)

    with handling(connect, fails) as running:
        eventually(lambda: running.consumer.metrics().dead == 2)
        eventually(lambda: running.attempts()[11] == 2)
        metrics = running.consumer.metrics()
    expected = Counter(range(20)) + Counter({3: 2, 7: 2, 11: 1})
    assert running.attempts() == expected
    assert (metrics.handled, metrics.failed, metrics.retried, metrics.dead) == (18, 7, 5, 2)
    tries = defaultdict(list)
    for message, seconds in running.seen:
        tries[message.message].append((message, seconds))
    for value in (3, 7):
        (first, start), (second, middle), (third, end) = tries[value]
        assert (middle - start >= 0.049, end - middle >= 0.149) == (True, True)
        assert [first.attempt, second.attempt, third.attempt] == [1, 2, 3]
        assert first[1:5] == second[1:5] == third[1:5], "wherever it is, it has its place"
        assert (first.reason, third.reason) == ("", f"ValueError: no {value}")
    found = dead(broker)
    assert found.keys() == {3, 7}
    letter, (message, _) = found[3], tries[3][0]
    assert (letter.group, letter.attempts, letter.reason) == ("g", 3, "ValueError: no 3")
    assert message[1:5] == (letter.topic, letter.partition, letter.offset, letter.broker)


def test_a_member_that_dies_before_it_commits_loses_nothing(
    cluster: Cluster, connect: str, tmp_path: Path, make_session: Any, eventually: Any
) -> None:
    """Killed when the message is in the retry topic, and its offset not stored yet."""
    broker = cluster.broker()
    producer_config = ProducerConfig(zookeeper_connect=connect, acks="flushed", encoder="json")
    with Producer(producer_config) as producer:
        producer.send("t", [[0, 99], [1, 0]], key="together")
    with RetryingProcess(connect, "t", "1h", tmp_path / "first") as first:
        eventually(lambda: letters_in(broker.host, broker.port, "t.g.retry.1"))
        first.kill()
    assert set(offsets(make_session(connect)).values()) == {0}

    def dead_letters() -> list[int]:
        found = letters_in(broker.host, broker.port, "t.g.dead")
        return [json.loads(each.payload)[0] for each in found]

    with RetryingProcess(connect, "t", "50ms", tmp_path / "again") as again:
        eventually(lambda: dead_letters() == [0, 0], "the copy of before the kill, and the other")
        eventually(lambda: any(each.number == 1 and each.succeeded for each in again.attempts()))
        again.stop()
    assert max(offsets(make_session(connect)).values()) > 0
    tries = [each.attempt for each in again.attempts() if each.number == 0]
    assert sorted(tries) == [1, 2, 2, 3, 3], "attempts are counted on, and not from the start"


def test_kills_lose_nothing(
    cluster: Cluster, connect: str, tmp_path: Path, eventually: Any
) -> None:
    check_nothing_is_lost(
        cluster.broker(), connect, tmp_path / "output", eventually, kills=3, seed=1
    )


def test_a_broker_that_goes_away_and_returns_is_waited_for(
    connect: str, tmp_path: Path, eventually: Any
) -> None:
    settings = {
        "log_dir": str(tmp_path / "log"),
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "zookeeper_session_timeout": "2s",
    }
    broker = RestartableBroker(tmp_path / "broker", settings)
    try:
        with Producer(
            ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}", acks="flushed", encoder="json")
        ) as producer:
            producer.send("t", list(range(10)))
        is_down = threading.Event()
        may_fail = threading.Event()
        handled: set[int] = set()

        def fails(message: RetryMessage) -> None:
            if message.attempt == 1 and message.message == 5:
                is_down.set()
                may_fail.wait(60)
                fail(message)
            handled.add(message.message)

        with handling(connect, fails) as running:
            assert is_down.wait(60)
            broker.kill()
            may_fail.set()
            broker.kill_and_restart()
            eventually(lambda: handled == set(range(10)))
        # Twice, if the broker was away for so long that its partitions had to be released.
        assert running.consumer.metrics().retried >= 1
        assert {message.attempt for message, _ in running.seen if message.message == 5} == {1, 2}
    finally:
        broker.stop()


def test_a_message_that_does_not_fit_with_its_letter_waits_and_the_others_do_not(
    connect: str, eventually: Any
) -> None:
    settings = {
        "num_partitions": 2,
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "max_message_bytes": 400,
    }
    mended = threading.Event()

    def fails(message: RetryMessage) -> None:
        if message.message[0] == "large" and not mended.is_set():
            raise ValueError("x" * 2000)

    with running_broker(None, settings) as broker, handling(connect, fails) as running:
        large, *small = [
            json.dumps(each).encode()
            for each in (["large", "x" * 350], *(["small", number] for number in range(5)))
        ]
        with SyncProducer(broker.host, broker.port) as producer:
            for partition, payloads in enumerate(([large], small)):
                producer.send("t", partition, encode_message_set(payloads))
        eventually(lambda: running.consumer.metrics().unsent >= 2)
        eventually(lambda: running.consumer.metrics().handled == 5)
        mended.set()
        eventually(lambda: running.consumer.metrics().handled == 6)
        assert running.consumer.metrics().failed == 0


def test_poison_reaches_the_dead_letters_at_once(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    broker = cluster.broker()

    def reject(message: RetryMessage) -> None:
        raise MessageRejectedError("never")

    with handling(connect, reject) as running:
        with Producer(ProducerConfig(zookeeper_connect=connect)) as producer:
            producer.send("t", [b"{", b"\xff\x00", b"", b"1"])
        eventually(lambda: running.consumer.metrics().dead == 4)
        assert running.consumer.metrics() == RetryMetrics(failed=4, dead=4)
    letters = letters_in(broker.host, broker.port, "t.g.dead")
    reasons = {each.payload: each.reason.partition(":")[0] for each in letters}
    assert reasons == {
        b"{": "EncodingError",
        b"\xff\x00": "EncodingError",
        b"": "EncodingError",
        b"1": "MessageRejectedError",
    }
    assert {each.attempts for each in letters} == {1}


def test_dead_letters_are_replayed_to_all_or_to_the_group(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    broker = cluster.broker()
    cluster.send("t", range(8))

    def fails(message: RetryMessage) -> None:
        if message.message in (2, 6):
            fail(message)

    def replay(*arguments: str) -> str:
        command = ["replay", "-b", f"{broker.host}:{broker.port}", "-t", "t.g.dead", "-q"]
        result = CliRunner().invoke(program, [*command, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    with handling(connect, fails, delays=[]) as running:
        # The others may be read later than these two, and must not come among the replayed.
        eventually(lambda: running.consumer.metrics().handled == 6)
        eventually(lambda: running.consumer.metrics().dead == 2)
        first = {message.message: message for message, _ in running.seen}
        running.failing = lambda message: None
        running.seen.clear()
        told = replay("--dead-letters")
        assert told == "2 messages, 2 B, copied from t.g.dead to where they were published\n"
        eventually(lambda: len(running.seen) == 2)
        for message, _ in running.seen:
            assert message.message in (2, 6)
            assert (message.attempt, message.partition) == (1, first[message.message].partition)
            assert message.offset > first[message.message].offset
        running.seen.clear()
        replay("--to", "t.g.retry.1")
        eventually(lambda: len(running.seen) == 2)
        for message, _ in running.seen:
            assert (message.attempt, message.offset) == (2, first[message.message].offset)
        assert running.consumer.metrics().dead == 2


def test_members_that_come_and_go_share_retries(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    cluster.broker()
    handled: set[int] = set()

    def fails(message: RetryMessage) -> None:
        if message.message % 2 and message.attempt < 3:
            fail(message)
        handled.add(message.message)

    cluster.send("t", range(60))
    with handling(connect, fails) as first:
        eventually(lambda: first.consumer.metrics().retried >= 5)
        with handling(connect, fails) as second:
            eventually(lambda: second.consumer.metrics().handled >= 1)
            cluster.send("t", range(60, 120))
            eventually(lambda: second.consumer.metrics().retried >= 5)
        eventually(lambda: handled == set(range(120)))
        assert (first.error, second.error) == (None, None)
        assert first.consumer.metrics().dead == 0


def test_several_threads_share_the_partitions(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    together = threading.Barrier(3)

    def wait_for_others(message: RetryMessage) -> None:
        together.wait(60)

    broker = cluster.broker()
    with SyncProducer(broker.host, broker.port) as producer:
        for number in range(12):
            producer.send("t", number % 4, encode_message_set([b"%d" % number]))
    with handling(connect, wait_for_others, streams=3) as running:
        eventually(lambda: running.consumer.metrics().handled >= 3)
        running.failing = lambda message: None
        together.abort()  # also for a thread that comes to it only now
        eventually(lambda: set(running.values()) == set(range(12)))


def test_a_group_that_starts_at_the_end_gets_its_first_failure_again(
    cluster: Cluster, connect: str, make_session: Any, eventually: Any
) -> None:
    cluster.broker()
    cluster.send("t", range(4))
    settings = {"auto_offset_reset": "largest", "consumer_id": "me"}
    with handling(connect, settings=settings) as running:
        session = make_session(connect)
        eventually(lambda: len(offsets(session)) == 4)
        running.failing = lambda message: fail(message) if message.attempt == 1 else None
        cluster.send("t", range(4, 8))
        eventually(lambda: running.consumer.metrics().handled == 4)
        assert set(running.values()) == {4, 5, 6, 7}


def test_a_run_ends_in_time_and_goes_on_where_it_was(
    cluster: Cluster, connect: str, eventually: Any
) -> None:
    cluster.broker()
    cluster.send("t", range(4))
    seen: list[RetryMessage] = []
    config = ConsumerConfig(
        group="g", zookeeper_connect=connect, decoder="json", consumer_timeout="1s"
    )
    with RetryingConsumer(config, ["t"]) as consumer:
        with pytest.raises(ConsumerTimeoutError):
            consumer.run(seen.append)
        cluster.send("t", [4])

        def again(message: RetryMessage) -> None:
            seen.append(message)
            consumer.stop()
            with pytest.raises(ClientError, match="use stop there"):
                consumer.close()
            with pytest.raises(ClientError, match="runs already"):
                consumer.run(seen.append)

        consumer.run(again)
        consumer.run(again)
    assert sorted(each.message for each in seen) == list(range(5))
    with pytest.raises(ClientError, match="is closed"):
        consumer.run(again)
    consumer.close()


def test_settings_that_can_not_be(connect: str) -> None:
    config = ConsumerConfig(group="g", zookeeper_connect=connect)
    with pytest.raises(ConfigError, match="auto_commit"):
        RetryingConsumer(
            ConsumerConfig(group="g", zookeeper_connect=connect, auto_commit=False), ["t"]
        )
    with pytest.raises(ConfigError, match="streams"):
        RetryingConsumer(config, ["t"], streams=0)


def test_a_coroutine_function_handles_messages_side_by_side(cluster: Cluster, connect: str) -> None:
    cluster.broker()
    cluster.send("t", range(40))
    attempts: Counter[int] = Counter()
    config = ConsumerConfig(group="g", zookeeper_connect=connect, decoder="json")

    async def main() -> None:
        together = asyncio.Barrier(2)

        async def handle(message: RetryMessage) -> None:
            attempts[message.message] += 1
            if sum(attempts.values()) <= 2:
                await together.wait()
            await asyncio.sleep(0)
            if message.attempt == 1 and message.message == 7:
                fail(message)
            if len(attempts) == 40 and attempts[7] == 2:
                consumer.stop()

        async with aio.RetryingConsumer(config, ["t"], delays=["10ms"], streams=2) as consumer:
            await consumer.run(handle)
            assert consumer.metrics() == RetryMetrics(handled=40, failed=1, retried=1)

    asyncio.run(main())
    assert attempts == Counter(range(40)) + Counter({7: 1})


def test_a_cancelled_coroutine_function_has_not_failed(cluster: Cluster, connect: str) -> None:
    cluster.broker()
    cluster.send("t", [1])
    config = ConsumerConfig(group="g", zookeeper_connect=connect, decoder="json", fetch_wait="20ms")
    seen: list[int] = []

    async def interrupted() -> None:
        async def handle(message: RetryMessage) -> None:
            seen.append(message.attempt)
            raise asyncio.CancelledError

        async with aio.RetryingConsumer(config, ["t"]) as consumer:
            with pytest.raises(asyncio.CancelledError):
                await consumer.run(handle)
            assert consumer.metrics() == RetryMetrics()

    async def cancelled() -> None:
        is_handling = asyncio.Event()

        async def handle(message: RetryMessage) -> None:
            seen.append(message.attempt)
            is_handling.set()
            await asyncio.sleep(0.01)

        async with aio.RetryingConsumer(config, ["t"]) as consumer:
            running = asyncio.ensure_future(consumer.run(handle))
            await is_handling.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert consumer.metrics() == RetryMetrics(handled=1)

    asyncio.run(interrupted())
    asyncio.run(cancelled())
    assert seen == [1, 1]
    with pytest.raises(ClientError, match="is not started"):
        aio.RetryingConsumer(config, ["t"]).stop()
