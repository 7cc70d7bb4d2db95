"""The API for applications: a function is called with each message, and again if it fails."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Self

from hermes.client.arguments import check_config
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.connector import Consumer, RebalanceListener, decoder_of
from hermes.client.metrics import RetryCounters, RetryMetrics
from hermes.client.payloads import RoutedKey
from hermes.client.producer import Producer
from hermes.client.producer_config import ProducerConfig
from hermes.client.retrying.ladder import Ladder
from hermes.client.retrying.letter_headers import letter_record
from hermes.client.retrying.letters import Letter
from hermes.client.retrying.messages import RetryMessage
from hermes.client.retrying.worker import Worker, WorkerContext
from hermes.errors import ClientError, ConfigError, WrongFormatError
from hermes.forks import watch_forks
from hermes.keywords import explains_keywords
from hermes.quoting import quoted

# How long storing a message that failed may take before its partition is paused.
_DELIVERY_SECONDS: Final = 10
# The broker's limit counts, whatever it is.
_ANY_SIZE: Final = 2**31 - 1


@explains_keywords
class RetryingConsumer:
    """A member of a group that processes messages with a function and retries failed ones later.

    It calls a function with each message. If that raises an exception, the message goes into a
    retry topic, `<topic>.<group>.retry.1`, waits there for the first of the delays, and is handled
    again by one of the group's members; if it fails again, it goes into the next retry topic, and
    at last among the dead letters, `<topic>.<group>.dead`. Its offset is committed only after it
    has been stored there on disk. Messages after it don't wait for it.

    Example:
        config = ConsumerConfig(group="billing", brokers="localhost:9092", decoder="json")
        with RetryingConsumer(config, ["orders"], delays=["5s", "1m", "10m"]) as consumer:
            consumer.run(lambda order: charge(order.message))

    Args:
        config: the member's settings; with `auto_commit`. `auto_offset_reset` is for the topics
            alone, retry topics are always read from the start. `consumer_timeout` limits how long
            `run` waits for a message.
        topics: the topics to read, at least one.
        delays: how long a message waits after each failure, durations as in the settings; one retry
            topic for each. None at all makes every failed message a dead letter.
        streams: how many threads handle messages, 1 or more.
        listener: is notified of rebalances.

    Raises:
        ConfigError: a setting is wrong; the text names it.
        InvalidTopicError: a topic's name with the group's is too long, or not allowed.
        CoordinationUnavailableError: ZooKeeper can't be reached.
        IdInUseError: another live consumer has the configured consumer_id.
        PluginError: the decoder is missing or wrong.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Sequence[str],
        *,
        delays: Sequence[str | float] = ("5s", "1m", "10m"),
        streams: int = 1,
        listener: RebalanceListener | None = None,
    ) -> None:
        check_config(config, ConsumerConfig, "brokers")
        if not config.auto_commit:
            raise ConfigError("auto_commit", "expected True: offsets follow what was handled")
        if type(streams) is not int or streams < 1:
            raise ConfigError("streams", f"expected a whole number >= 1, got {quoted(streams)}")
        self.config = config
        self.ladder = Ladder(config.group, topics, delays)
        self._decode = decoder_of(config)
        self._counters = RetryCounters()
        self._payloads_only: set[str] = set()
        self._shared: WorkerContext | None = None
        self._is_stopped = self._is_closed = False
        self._runs = threading.Lock()
        self._workers: set[int] = set()
        self._idle = threading.Condition()
        # Undecoded: a letter holds the payload that failed, whatever the decoder makes of it.
        raw = replace(config, decoder="bytes", decoder_options={}, consumer_timeout=None)
        again = replace(
            raw,
            auto_offset_reset="smallest",  # a retry topic begins with the first message that failed
            consumer_id=f"{config.consumer_id}-retries" if config.consumer_id else "",
        )
        self._closing: list[Callable[[], None]] = []
        try:
            self._producer = Producer(_producer_config(config))
            self._closing.append(self._producer.close)
            retries = Consumer.create(again, listener)
            self._closing.append(retries.shutdown)
            self._retries = retries.create_message_streams_by_filter(
                self.ladder.retry_topics(), streams
            )
            first = Consumer.create(raw, listener)
            self._closing.append(first.shutdown)
            self._streams = first.create_message_streams(dict.fromkeys(self.ladder.topics, streams))
        except BaseException:
            self.close()
            raise
        watch_forks(self)

    def run(self, handle: Callable[[RetryMessage], object]) -> None:
        """Call a function with each message, until `stop`.

        It is called in this thread; with several `streams` in as many threads at a time, of which
        this is one. What it returns doesn't matter. An exception that it raises means that it has
        failed; `MessageRejectedError`, that no retry can help. What is no `Exception`, a
        KeyboardInterrupt for instance, ends the run, and the message is handled again later. It
        gets the same message again after a crash, too, or a rebalance that didn't wait for it.

        Raises:
            ConsumerTimeoutError: there was no message for `consumer_timeout`, and none waits here
                to be retried.
            HermesError: a stream can't go on, as of `MessageStream`. Call `run` again to have the
                messages of other partitions handled.
            ClientError: it runs already, or is closed.
        """
        if not self._runs.acquire(blocking=False):
            raise ClientError("the consumer runs already")
        try:
            if self._is_closed:
                raise ClientError("the consumer is closed")
            self._run(handle)
        finally:
            self._runs.release()

    def stop(self) -> None:
        """Have `run` return after the messages that are being handled now, for good.

        Any thread may call it, and the handler of a signal.
        """
        self._is_stopped = True
        if self._shared is not None:
            self._shared.is_stopped = True

    def close(self) -> None:
        """Stop, wait for the messages that are being handled, commit, leave the group. Idempotent.

        Raises:
            ClientError: the function that handles messages calls it; `stop` is for that.
        """
        with self._idle:
            if threading.get_ident() in self._workers:
                raise ClientError("close can't be called while handling a message: use stop there")
            self.stop()
            self._idle.wait_for(lambda: not self._workers)
        self._is_closed = True
        while self._closing:
            self._closing.pop()()

    def metrics(self) -> RetryMetrics:
        """A snapshot of the counters."""
        return self._counters.snapshot()

    def forked(self) -> None:
        """See `hermes.forks.Forkable`: the member of the group is the parent."""
        self._is_stopped = self._is_closed = True
        self._idle, self._runs = threading.Condition(), threading.Lock()
        self._workers = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- inside ---------------------------------------------------------------------------------

    def _run(self, handle: Callable[[RetryMessage], object]) -> None:
        timeout = self.config.consumer_timeout
        self._shared = shared = WorkerContext(
            self.ladder,
            handle,
            self._decode,
            self._store,
            None if timeout is None else self.config.seconds("consumer_timeout"),
            self._counters,
        )
        if self._is_stopped:
            shared.is_stopped = True
        failures: list[BaseException] = []
        workers = [
            Worker(streams, retries, shared)
            for *streams, retries in zip(*self._streams.values(), self._retries, strict=True)
        ]
        threads = [
            threading.Thread(
                target=self._work,
                args=(worker, shared, failures),
                name=f"hermes-retrying-{number}",
                daemon=True,
            )
            for number, worker in enumerate(workers[1:], 1)
        ]
        for thread in threads:
            thread.start()
        try:
            self._work(workers[0], shared, failures)
        finally:
            shared.is_stopped = True
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def _store(self, topic: str, letter: Letter) -> None:
        """Store a letter in the form that the topic's format allows."""
        # Messages of one partition share a partition on their way, too, and so keep an order.
        origin = letter.origin
        if topic not in self._payloads_only:
            try:
                self._producer.send(topic, letter_record(letter), RoutedKey(origin, letter.key))
                return
            except WrongFormatError:
                self._payloads_only.add(topic)
        self._producer.send(topic, letter.encode(), origin)

    def _work(self, worker: Worker, shared: WorkerContext, failures: list[BaseException]) -> None:
        thread = threading.get_ident()
        with self._idle:
            self._workers.add(thread)
        try:
            worker.run()
        except BaseException as error:
            failures.append(error)
        finally:
            shared.is_stopped = True
            with self._idle:
                self._workers.discard(thread)
                self._idle.notify_all()


def _producer_config(config: ConsumerConfig) -> ProducerConfig:
    return ProducerConfig(
        acks="flushed",
        delivery_timeout=f"{_DELIVERY_SECONDS}s",
        max_message_bytes=_ANY_SIZE,
        connect_timeout_seconds=config.seconds("connect_timeout"),
        supports_hermes_requests=config.supports_hermes_requests,
        **config.of_cluster(),
    )
