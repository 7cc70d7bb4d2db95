"""The consumer group API: a consumer's connection to its group."""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from hermes.client.arguments import check_config, check_instance, check_topic
from hermes.client.bootstrap import coordination_of
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember
from hermes.client.groups.streams import Claim, MessageStream
from hermes.client.metrics import GroupMetrics
from hermes.coordination.layout import BrokerPartition, Subscription, make_consumer_id
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import TopicFilter
from hermes.errors import ArgumentError, ClientError, ConfigError, HermesError
from hermes.forks import FORKED, watch_forks
from hermes.interfaces import IDecoder
from hermes.keywords import explains_keywords
from hermes.plugins.discovery import load_plugin, verify_plugin
from hermes.protocol import check_topic_name
from hermes.quoting import quoted

_log = logging.getLogger(__name__)


class RebalanceListener(Protocol):
    """Is notified of rebalances, in a thread of the connector's; must not take long."""

    def before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        """These are about to be released; none of their messages is handed out any more.

        The place to store results of their messages, or to call `commit_offsets`, also during
        `shutdown`. It is not called for partitions that are lost with the session.
        """

    def after_take(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        """These are owned from now on."""


@explains_keywords
class Connector:
    """One member of a group, from its creation to its shutdown. Threads may share it.

    Offsets are committed for messages that the application has finished: those after which it has
    taken the next one from the stream.

    Raises:
        ConfigError: a certificate or a key can't be used.
        NoCoordinationError: the broker has no coordination.
        BrokerUnavailableError: none of the brokers can be reached.
        CoordinationUnavailableError: ZooKeeper can't be reached.
        CoordinationNotAuthenticatedError: it refuses the user.
        PluginError: the decoder is missing or wrong.
    """

    def __init__(self, config: ConsumerConfig, listener: RebalanceListener | None = None) -> None:
        check_config(config, ConsumerConfig, "brokers")
        self.config = config
        self.consumer_id = config.consumer_id or make_consumer_id(
            config.group,
            socket.gethostname(),
            time.time_ns() // 1_000_000,
            uuid.uuid4().hex[:8],
        )
        self._listener = listener
        self._decode = decoder_of(config)
        self._membership: GroupMember | None = None
        self._created = self._closed = self._is_over = self._is_forked = False
        config.check()
        self._session = Session(
            config.zookeeper_connect or _coordination_of(config),
            security=config.coordination_security,
            session_timeout_seconds=config.seconds("zookeeper_session_timeout"),
            connection_timeout_seconds=config.seconds("zookeeper_connection_timeout"),
            on_change=self._session_changed,
        )
        self._session.start(_log.warning)
        self._membership = GroupMember(
            config,
            self.consumer_id,
            self._session,
            self._before_release,
            listener.after_take if listener else _nothing,
            make_claim=self._make_claim,
        )
        watch_forks(self)

    def create_message_streams(self, streams: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Join the group for some topics.

        Args:
            streams: how many streams of each topic, 1 or more: one for each thread that will
                iterate. More than there are partitions get nothing.

        Raises:
            ClientError: this connector has already created its streams.
            IdInUseError: another live consumer has the configured consumer_id.
        """
        if not isinstance(streams, Mapping):
            raise ArgumentError(
                f"streams: expected how many by topic, as {{'clicks': 1}}; got {quoted(streams)}"
            )
        for topic, count in streams.items():
            check_topic(topic)
            check_topic_name(topic)
            if '"' in topic or "\\" in topic:
                raise ConfigError("topic", f"{quoted(topic)}: Kafka 0.7 can't register such a name")
            _check_count(count)
        if not streams:
            raise ConfigError("streams", "expected a topic at least")
        made = {
            topic: [self._stream(f"{topic}-{number}") for number in range(count)]
            for topic, count in streams.items()
        }
        self._join(Subscription(dict(streams)), [each for one in made.values() for each in one])
        return made

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[MessageStream]:
        """Join the group for all topics that a filter allows, also those created later.

        Args:
            topic_filter: a `Whitelist` or a `Blacklist`.
            count: how many streams, 1 or more; each has messages of all the topics.

        Raises:
            ClientError, IdInUseError: as `create_message_streams`.
        """
        check_instance("topic_filter", topic_filter, TopicFilter, "use a Whitelist or a Blacklist")
        _check_count(count)
        made = [self._stream(f"{topic_filter!r}-{number}") for number in range(count)]
        self._join(Subscription({}, topic_filter, count), made)
        return made

    def commit_offsets(self) -> None:
        """Commit what the application has finished, and this thread's current message.

        Raises:
            CoordinationUnavailableError: ZooKeeper does not answer; some may be stored.
        """
        self.finish(threading.get_ident())
        self.commit_finished()

    def commit_finished(self) -> None:
        """As `commit_offsets`, without messages still being processed."""
        self._members().commit()

    def metrics(self) -> GroupMetrics:
        """A snapshot of this member's counters and of its positions in its partitions."""
        return self._members().metrics()

    def finish(self, reader: object) -> None:
        """Count this reader's current message as finished; see `MessageStream.poll`."""
        for stream in self._members().streams:
            stream.finish_if_reader(reader)

    def shutdown(self) -> None:
        """Commit (with auto_commit), leave the group, end the streams. Idempotent.

        The listener is told first, and may still commit. A message that the application has not
        finished with is delivered again, to the next owner. In a process that was forked from the
        member's it does nothing.

        Raises:
            ClientError: a listener calls it.
        """
        if self._closed:
            return
        if self._membership is not None:
            self._membership.check_thread()
        self._closed = True
        try:
            if self._membership is not None:
                self._membership.stop()
        finally:
            self._is_over = True
            self._session.stop()

    def forked(self) -> None:
        self._closed = self._is_forked = True
        if self._membership is not None:
            for stream in self._membership.streams:
                stream.forked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    # -- inside ---------------------------------------------------------------------------------

    def _make_claim(self, *arguments: Any) -> Claim:
        return Claim(*arguments)

    def _before_release(self, partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
        if self._listener is not None:
            self._listener.before_release(partitions)

    def _session_changed(self) -> None:
        if self._membership is not None:
            self._membership.wake()

    def _members(self) -> GroupMember:
        if self._is_forked:
            raise ClientError(f"this connector {FORKED}")
        if self._is_over or self._membership is None:
            raise ClientError("the connector is shut down")
        return self._membership

    def _stream(self, name: str) -> MessageStream:
        timeout = self.config.consumer_timeout
        seconds = None if timeout is None else self.config.seconds("consumer_timeout")
        return MessageStream(name, self._decode, seconds, self._members().wake_fetchers)

    def _join(self, subscription: Subscription, streams: Sequence[MessageStream]) -> None:
        membership = self._members()
        if self._created or self._closed:
            raise ClientError("a connector creates its streams once; use another one for more")
        self._created = True
        try:
            membership.start(subscription, streams)
        except HermesError:
            self.shutdown()
            raise


class Consumer(Connector):
    """A consumer in a group: a `Connector`, under the name users look for.

    Example:
        config = ConsumerConfig(group="search", brokers="localhost:9092")
        with Consumer(config) as connector:
            (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
            for message, topic, partition, offset, *_ in stream:
                index(message)
    """

    @staticmethod
    def create(config: ConsumerConfig, listener: RebalanceListener | None = None) -> "Consumer":
        """Create one, as Kafka 0.7's clients do; the same as `Consumer(config, listener)`."""
        return Consumer(config, listener)


def decoder_of(config: ConsumerConfig) -> Callable[[str, bytes], Any] | None:
    """What makes values of payloads; None if payloads are the values. Raises PluginError."""
    decoder: Any = config.decoder
    if isinstance(decoder, str):
        decoder = load_plugin("hermes.encoders", decoder, IDecoder, **config.decoder_options)
    else:
        verify_plugin(decoder, IDecoder, "the consumer's decoder")
    return None if config.decoder == "bytes" else decoder.decode


def _coordination_of(config: ConsumerConfig) -> str:
    return coordination_of(
        config.broker_addresses(),
        timeout_seconds=config.seconds("timeout"),
        connect_timeout_seconds=config.seconds("connect_timeout"),
        **config.settings(),
    )


def _check_count(count: int) -> None:
    if type(count) is not int or count < 1:
        raise ConfigError("streams", f"expected a whole number >= 1, got {quoted(count)}")


def _nothing(partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
    pass
