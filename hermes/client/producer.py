"""The producer: encodes, chooses partitions, sends, at once or in batches from a thread.

Long because it is the whole life of one object, from settings to end, and much is docstrings.
"""

import atexit
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Never, Self, TypeAlias, overload

from zope.interface import Interface

from hermes.client.arguments import check_config, check_topic
from hermes.client.batching import (
    Batch,
    NoRoomNowError,
    Outcome,
    SendHandle,
    SendingQueue,
    WaitingSend,
)
from hermes.client.bootstrap import ClusterSearch
from hermes.client.failures import Failures
from hermes.client.grouping import SetRules, TopicFormats
from hermes.client.handlers import Handlers
from hermes.client.metrics import ProducerCounters, ProducerMetrics
from hermes.client.payloads import (
    GivenHeaders,
    InPartition,
    Keys,
    Payloads,
    ProducerData,
    check_keys,
    check_messages,
    message_count,
    with_options,
)
from hermes.client.producer_config import ListedBroker, ProducerConfig
from hermes.client.routing import Router
from hermes.client.sending import MAX_ACKNOWLEDGED_SET_BYTES, MAX_SET_BYTES, RetryRules, Sender
from hermes.client.sync_producer import SyncProducer
from hermes.client.topic_metadata import (
    BrokerListMetadata,
    Brokers,
    MetadataProvider,
    ZooKeeperMetadata,
)
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ClientError, HermesError, QueueFullError
from hermes.forks import FORKED, watch_forks
from hermes.interfaces import ICallbackHandler, IEncoder, IEventHandler, IPartitioner
from hermes.keywords import explains_keywords
from hermes.plugins.discovery import load_plugin, verify_plugin
from hermes.protocol import check_topic_name

_log = logging.getLogger(__name__)

# The arguments of `SendingQueue.put`.
_Item: TypeAlias = tuple[str, Any, Any, int, int]

# Keys that have to fit what they are given with.
_CHECKED_KEYS: Final = (Keys, InPartition)

# For how long a broker that did not accept a connection in time doesn't hold up messages for the
# others again. With one broker there are no others, and every retry is worth its wait.
_HOLD_OFF_SECONDS: Final = 10.0


@explains_keywords
class Producer:
    """Publishes messages to topics over one or more brokers. Threads may share it.

    Example:
        with Producer(ProducerConfig(broker_list="localhost:9092", acks="flushed")) as producer:
            producer.send("clicks", [b"first", b"second"])
            producer.send("clicks", b"third", key="user-7")

    Raises:
        ConfigError: a certificate or a key can't be used.
        PluginError: a plugin that the configuration names is missing or wrong.
        CoordinationUnavailableError: ZooKeeper can't be reached.
    """

    def __init__(self, config: ProducerConfig) -> None:
        check_config(config, ProducerConfig, "broker_list")
        self.config = config
        config.check()
        self._brokers = Brokers(partial(_broker_producer, config))
        encoder = _plugin(config, "encoder", IEncoder)
        partitioner = _plugin(config, "partitioner", IPartitioner)
        callback_handler = _plugin(config, "callback_handler", ICallbackHandler)
        event_handler = _plugin(config, "event_handler", IEventHandler)
        self._counters = ProducerCounters()
        self._failures = Failures()
        self._payloads = Payloads(
            encoder, config.max_message_bytes, passes_bytes=config.encoder == "bytes"
        )
        self._metadata = _metadata_provider(config, self._brokers)
        self._sender = Sender(
            self._brokers,
            Router(self._metadata, partitioner),
            SetRules(
                config.codec_of, _max_set_bytes(config), config.max_message_bytes, TopicFormats()
            ),
            config.required_acks(),
            RetryRules(
                config.seconds("delivery_timeout"),
                config.seconds("retry_backoff"),
                config.num_retries,
            ),
            may_go_without=config.acks is None,
        )
        self._handlers: Handlers | None = None
        if callback_handler is not None or event_handler is not None:
            self._handlers = Handlers(
                callback_handler, event_handler, self._payloads, self._sender, self._counters
            )
            try:
                self._handlers.open(config)
            except BaseException:
                self._metadata.close()
                raise
        self._known_topics: set[str] = set()
        self._closed = False
        self._queue: SendingQueue | None = None
        # Up to which size `send` puts payloads straight into the queue; -1 for none.
        self._quick_bytes = -1
        if config.producer_type == "async":
            self._queue = SendingQueue(config, self._settle)
            if config.encoder == "bytes" and self._handlers is None:
                self._quick_bytes = config.max_message_bytes
        self._is_forked = False
        self._at_exit = _close_at_exit(self)
        watch_forks(self)

    @overload
    def send(self, topic: ProducerData) -> SendHandle: ...

    @overload
    def send(
        self,
        topic: str,
        messages: Any,
        key: Any = None,
        *,
        headers: GivenHeaders | None = None,
        partition: int | BrokerPartition | None = None,
    ) -> SendHandle: ...

    def send(
        self,
        topic: str | ProducerData,
        messages: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | BrokerPartition | None = None,
        **unknown: Never,
    ) -> SendHandle:
        """Send one message, or several to the same partition.

        Example:
            producer.send("clicks", b"payload")
            producer.send("clicks", [b"first", b"second"], key="user-7")
            producer.send("orders", b"payload", key=b"7", headers={"source": b"shop"}, partition=3)
            producer.send(ProducerData("clicks", b"payload"))

        Args:
            topic: where to; or all three in a `ProducerData`.
            messages: one value, or a list of values, of the kind that the encoder takes.
            key: chooses the partition; messages with equal keys keep their order. None for any.
                `Keys` for one per message: then the outcome is that of the first that failed, or
                else of the first.
            headers: of each message, for topics of Kafka's format: a mapping of names to bytes, or
                pairs of them, in which a name may repeat.
            partition: where to, whatever the key is: a number as `result` gives it. Where several
                brokers have one of this number, a `BrokerPartition`, as streams of groups have it.

        Returns:
            The outcome. With a synchronous producer it is already known; with an asynchronous
            one, call `result`, or leave it to the callback handler.

        Raises:
            ArgumentError: an argument is unknown or of the wrong type, or the list is empty.
            EncodingError: a value is not of that kind. (With handlers, `result` raises it.)
            MessageTooLargeError: a payload is larger than `max_message_bytes`. (Likewise.)
            InvalidTopicError: no topic can have this name.
            QueueFullError: asynchronous: the queue had no room in time.
            ClientError: the producer is closed, or belongs to the process that this one was forked
                from. Synchronous: RoutingError, BrokerUnavailableError,
                BrokerTimeoutError: it was not sent, with retries, or nobody knows.
            BrokerError: synchronous: the broker refused it.
        """
        if (
            type(messages) is bytes
            and type(topic) is str
            and len(messages) <= self._quick_bytes
            and topic in self._known_topics
            and type(key) not in _CHECKED_KEYS
            and headers is None
            and partition is None
            and not unknown
        ):
            # What nearly every call of an asynchronous producer is, with one more call only.
            assert self._queue is not None
            try:
                return self._queue.put(topic, messages, key, 1, len(messages))
            except QueueFullError as error:
                return self._refused(error, 1)
        if headers is not None or partition is not None or unknown:
            if isinstance(topic, ProducerData):
                topic, messages, key = topic
            messages, key = with_options(messages, key, headers, partition, unknown)
        item = self._item(topic, messages, key)
        if isinstance(item, SendHandle):
            return item
        return self._send_now(item) if self._queue is None else self._enqueue(item)

    def offer(self, topic: str, messages: Any, key: Any = None) -> SendHandle | WaitingSend:
        """Send without waiting, so that an event loop's thread may call it: asynchronous ones only.

        Returns:
            As `send`. When the queue has no room and `queue_full` is "block", what continues
            where this one stopped: it waits, as `send` does, in another thread.
        """
        item = self._item(topic, messages, key)
        if isinstance(item, SendHandle):
            return item
        try:
            return self._enqueue(item, may_wait=False)
        except NoRoomNowError:
            assert self._queue is not None
            return WaitingSend(partial(self._enqueue, item), self._queue)

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything accepted so far has its outcome.

        Without acknowledgements it also makes sure that the brokers have read what was sent.

        Args:
            timeout_seconds: how long to wait; None for as long as all retries may take.

        Raises:
            DeliveryError: messages of an asynchronous producer failed since the last flush, and
                neither a callback handler nor their handle has reported it.
            BrokerTimeoutError: it takes longer; sending continues.
            BrokerUnavailableError: a connection broke: unacknowledged messages may be lost.
            ClientError: a callback or a hook calls it, or the process was forked.
        """
        if self._is_forked:
            raise self._why_closed()
        if self._queue is not None:
            self._queue.check_thread("flush")
            self._queue.flush(time.monotonic() + self._flush_seconds(timeout_seconds))
        self._sender.settle()
        self._raise_failures()

    def close(self, timeout_seconds: float | None = None) -> None:
        """Send what was accepted, then close the connections. Idempotent.

        Whatever can't be sent in time fails: handles and handlers report it, nothing vanishes. The
        errors are those of `flush`; the producer is closed all the same.

        Args:
            timeout_seconds: how long to continue sending; None for `delivery_timeout`.
        """
        if self._closed:
            return
        if self._queue is not None:
            self._queue.check_thread("close")
        self._closed = True
        self._quick_bytes = -1
        self._at_exit()
        try:
            if self._queue is not None:
                limit = self.config.seconds("delivery_timeout")
                self._drain(self._queue, limit if timeout_seconds is None else timeout_seconds)
            self.flush(0)
        finally:
            self._brokers.close()
            self._metadata.close()
            if self._handlers is not None:
                self._handlers.close()

    def metrics(self) -> ProducerMetrics:
        """A snapshot of the counters."""
        return self._counters.snapshot(self._queue.queued_count if self._queue else 0)

    def forked(self) -> None:
        """See `hermes.forks.Forkable`: messages in the queue are the parent's to send."""
        self._closed = self._is_forked = True
        self._quick_bytes = -1
        self._at_exit()
        self._counters.forked()
        if self._queue is not None:
            self._queue.abandon(self._why_closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except HermesError:
            if error is None:
                raise
            # What made the block end matters more, and must not be hidden.
            _log.exception("closing the producer after another error failed as well")

    def _why_closed(self) -> ClientError:
        return ClientError(
            f"this producer {FORKED}" if self._is_forked else "the producer is closed"
        )

    # -- accepting ------------------------------------------------------------------------------

    def _item(self, topic: Any, messages: Any, key: Any) -> _Item | SendHandle:
        """What to put into a batch, checked; or the outcome, when a handler dropped it."""
        if self._closed:
            raise self._why_closed()
        if isinstance(topic, ProducerData):
            topic, messages, key = topic
        check_topic(topic)
        if type(key) is Keys:
            messages, key = check_keys(messages, key)
        elif type(key) is InPartition and type(key.key) is Keys:
            messages, keys = check_keys(messages, key.key)
            key = key._replace(key=keys)
        if topic not in self._known_topics:
            check_topic_name(topic)
            if len(self._known_topics) < 10_000:  # names may come from data: bounded
                self._known_topics.add(topic)
        if self._handlers is None:
            payloads, key, count, size_bytes = self._payloads.of(topic, messages, key)
            return topic, payloads, key, count, size_bytes
        check_messages(messages)
        item = self._handlers.before_enqueue(ProducerData(topic, messages, key))
        if item is None:
            self._counters.count_dropped(message_count(messages))
            return _settled(ClientError("the callback handler dropped the message"))
        return "", item, None, message_count(item), 0

    def _enqueue(
        self, item: _Item, waiting: WaitingSend | None = None, *, may_wait: bool = True
    ) -> SendHandle:
        assert self._queue is not None
        try:
            handle = self._queue.put(*item, may_wait, waiting)
        except QueueFullError as error:
            if self._handlers is not None:
                self._handlers.after_enqueue(item[1], False)
            return self._refused(error, item[3])
        if self._handlers is not None:
            self._handlers.after_enqueue(item[1], True)
        return handle

    def _refused(self, error: QueueFullError, count: int) -> SendHandle:
        self._counters.count_dropped(count)
        if self.config.queue_full != "drop":
            raise error
        return _settled(error)

    def _send_now(self, item: _Item) -> SendHandle:
        topic, messages, key, count, _ = item
        batch = Batch(topic, time.monotonic())
        handle = batch.add(messages, key, count)
        self._settle((batch,))
        outcome = batch.outcome(0)
        if isinstance(outcome, Exception):
            raise outcome
        return handle

    # -- sending --------------------------------------------------------------------------------

    def _settle(self, batches: Sequence[Batch]) -> None:
        """In the caller's thread, or in the queue's."""
        # Callers of a synchronous producer learn of failures anyway.
        reports = self._handlers is not None and self._handlers.report_failures
        results: Sequence[Sequence[Outcome]]
        try:
            results, sent, failed = self._send(batches)
        except Exception as error:
            if self._queue is None:
                raise
            # A fault of ours, of which handles and `flush` tell as of any other failure.
            _log.exception("sending %d batches failed", len(batches))
            results = [[error] * len(each.items) for each in batches]
            sent, failed = 0, sum([each.message_count for each in batches])
            reports = False
        self._counters.count_batch(sent, failed, time.monotonic() - batches[0].started)
        if self._queue is not None and not reports:
            if sent:
                self._failures.end_burst()
            if failed:
                for batch, outcomes in zip(batches, results, strict=True):
                    self._note_failures(batch, outcomes)
        for batch, outcomes in zip(batches, results, strict=True):
            batch.finish(outcomes)

    def _send(self, batches: Sequence[Batch]) -> tuple[Sequence[Sequence[Outcome]], int, int]:
        """The outcomes of each batch; how many messages were sent, and how many were not."""
        if self._handlers is not None:
            (batch,) = batches
            outcomes, sent, failed, dropped = self._handlers.send(batch.items)
            if dropped:
                self._counters.count_dropped(dropped)
            return [outcomes], sent, failed
        deliveries = self._sender.send(batches)
        sent = sum([each.sent_count for each in deliveries])
        failed = sum([each.message_count for each in batches]) - sent
        for each in deliveries:
            each.forget_messages()
        return deliveries, sent, failed

    def _note_failures(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        errors = {
            index: outcome
            for index, outcome in enumerate(outcomes)
            if isinstance(outcome, Exception)
        }
        if errors:
            counts = {index: message_count(batch.items[index]) for index in errors}
            self._failures.note(batch, counts, next(iter(errors.values())))

    # -- closing --------------------------------------------------------------------------------

    def _flush_seconds(self, timeout_seconds: float | None) -> float:
        if timeout_seconds is not None:
            return timeout_seconds
        # For what is being sent and for what waits; the last request of each may end late.
        return 2 * (self.config.seconds("delivery_timeout") + self.config.timeout_seconds)

    def _raise_failures(self) -> None:
        failure = self._failures.take()
        if failure is not None:
            raise failure

    def _drain(self, queue: SendingQueue, seconds: float) -> None:
        queue.refuse()
        if queue.join(seconds):
            return
        _log.error("%d messages could not be sent in time", queue.queued_count)
        self._sender.abandon()
        self._brokers.close()  # ends the call under way; what is left fails at once
        queue.join(self.config.connect_timeout_seconds + 1)


def _plugin(config: ProducerConfig, setting: str, interface: type[Interface]) -> Any:
    """Load a plugin by its name, or check the object that was given instead; None for none."""
    given = getattr(config, setting)
    if given is None:
        return None
    if isinstance(given, str):
        options = getattr(config, f"{setting}_options")
        return load_plugin(f"hermes.{setting}s", given, interface, **options)
    verify_plugin(given, interface, f"the producer's {setting}")
    return given


def _broker_producer(config: ProducerConfig, host: str, port: int) -> SyncProducer:
    return SyncProducer(
        host,
        port,
        timeout_seconds=min(config.timeout_seconds, config.seconds("delivery_timeout")),
        connect_timeout_seconds=config.connect_timeout_seconds,
        hold_off_seconds=0.0 if _is_alone(config.brokers()) else _HOLD_OFF_SECONDS,
        supports_hermes_requests=config.supports_hermes_requests,
        **config.settings(),
    )


def _is_alone(listed: Sequence[ListedBroker]) -> bool:
    """Whether there is one broker for certain, and so nothing for others to be held up."""
    return len(listed) == 1 and listed[0].broker_id is not None


def _metadata_provider(config: ProducerConfig, brokers: Brokers) -> MetadataProvider:
    ways_in = []
    for broker_id, address in config.brokers():
        if broker_id is None:
            ways_in.append(address)
        else:
            brokers.place(broker_id, *address)
    if not config.zookeeper_connect:
        return BrokerListMetadata(
            brokers,
            config.partition_counts,
            config.seconds("metadata_max_age"),
            search=ClusterSearch(ways_in, brokers.at).find if ways_in else None,
        )
    return ZooKeeperMetadata(
        config.zookeeper_connect,
        brokers,
        security=config.security,
        coordination_security=config.coordination_security,
        session_timeout_seconds=config.seconds("zookeeper_session_timeout"),
        connection_timeout_seconds=config.seconds("zookeeper_connection_timeout"),
    )


def _max_set_bytes(config: ProducerConfig) -> int:
    if config.compression != "none":
        # A compressed set is one message to the broker, and so has a message's limit.
        return config.max_message_bytes
    return MAX_SET_BYTES if config.acks == "none" else MAX_ACKNOWLEDGED_SET_BYTES


def _settled(error: Exception) -> SendHandle:
    batch = Batch("", 0.0)
    batch.finish([error])
    return SendHandle((batch, 0))


def _close_at_exit(producer: Producer) -> Callable[[], None]:
    """Have a forgotten producer send what it accepted; returns what undoes that."""
    reference = weakref.ref(producer)

    def close() -> None:
        forgotten = reference()
        if forgotten is not None:
            _log.warning("a producer was not closed; sending what it has accepted")
            try:
                forgotten.close()
            except HermesError as error:
                _log.error("a producer that was not closed: %s", error)

    atexit.register(close)
    return lambda: atexit.unregister(close)
