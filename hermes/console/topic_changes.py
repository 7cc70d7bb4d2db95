"""Creates, alters and deletes topics: what a form offers, and which brokers are asked.

A topic of Kafka's format belongs to the whole cluster where brokers have `kafka_listen`: one of
them is asked, for all. One of 0.7's format is each broker's own, and so is each change of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hermes.client import SimpleConsumer
from hermes.config.addresses import BrokerAddress
from hermes.config.kinds import FORMAT_0_7, FORMAT_KAFKA
from hermes.config.setting import Setting
from hermes.config.topic import DEFAULT_OF, MAX_BATCH_BYTES, TOPIC_ONLY, TOPIC_SETTINGS
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import BrokerState, ClusterClient
from hermes.console.topic_views import TopicView
from hermes.coordination.cluster_view import read_listeners
from hermes.errors import ClientError, HermesError
from hermes.protocol import CreateTopicRequest, SettingDescription

PARTITIONS: Final = "partitions"
FORMAT: Final = "format"
COPIES: Final = "replicas"
ALTERED: Final = "altered"
# Follows the broker's bound of messages only where that is set.
_MAX_BATCH: Final = "max_batch_bytes"

#: The settings that a form has a field for; the others have one of their own kind.
FORM_SETTINGS: Final[Mapping[str, Setting]] = {
    name: setting for name, setting in TOPIC_SETTINGS.items() if name not in (PARTITIONS, FORMAT)
}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """`value`, `origin`: in force; empty where they aren't known.

    `default`: the broker's for topics that say nothing; empty where it isn't shown.
    """

    setting: Setting
    value: str = ""
    origin: str = ""
    default: str = ""

    @property
    def name(self) -> str:
        return self.setting.key

    @property
    def is_altered(self) -> bool:
        return self.origin == ALTERED


@dataclass(frozen=True, slots=True)
class TopicHost:
    """A broker that can have a new topic. `serves_kafka`: whether Kafka's clients can connect."""

    broker_id: int
    address: BrokerAddress
    serves_kafka: bool


class TopicChanger:
    """Changes topics. Methods may block, and may be called in any thread."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache

    # -- what forms show ------------------------------------------------------------------------

    def hosts(self) -> list[TopicHost]:
        states = [each for each in self._cluster.read(()) if each.supports(CreateTopicRequest.TYPE)]
        kafka = self._kafka_ids(states)
        return [TopicHost(each.broker_id, each.address, each.broker_id in kafka) for each in states]

    def _kafka_ids(self, states: Sequence[BrokerState]) -> set[int]:
        if not any(each.is_registered for each in states):
            return set()
        try:
            found = read_listeners(self._cluster.session(), lambda fault: None)
        except HermesError:  # then only topics tell
            return set()
        return {broker_id for broker_id, listeners in found.items() if listeners.kafka}

    def rows(
        self, described: Iterable[SettingDescription] = (), *, with_defaults: bool
    ) -> list[SettingRow]:
        """`described`: what is in force; empty for a new topic.

        `with_defaults`: whether the broker's defaults may be shown.
        """
        known = {each.name: each for each in described}
        defaults = {
            setting.key: setting.kind.show(TOPIC_ONLY[setting.attribute])
            for setting in FORM_SETTINGS.values()
            if setting.attribute in TOPIC_ONLY
        }
        if with_defaults:
            defaults |= self._cache.get(("defaults",), self._read_defaults)
        rows = []
        for name, setting in FORM_SETTINGS.items():
            found = known.get(name)
            value, origin = ("", "") if found is None else (found.value, found.origin)
            rows.append(SettingRow(setting, value, origin, defaults.get(name, "")))
        return rows

    def _read_defaults(self) -> dict[str, str]:
        for state in self._cluster.read(()):
            if state.supports(CreateTopicRequest.TYPE):
                try:
                    described = self._cluster.ask(state.address, SimpleConsumer.describe_settings)
                except HermesError:  # a form does without
                    continue
                known = {each.name: each for each in described}
                found = {name: known.get(DEFAULT_OF.get(name, name)) for name in FORM_SETTINGS}
                return {name: _default(name, each) for name, each in found.items() if each}
        return {}

    # -- changes --------------------------------------------------------------------------------

    def create(self, name: str, settings: Mapping[str, str], hosts: Sequence[TopicHost]) -> None:
        """Create a topic.

        Args:
            settings: among them `format`.
            hosts: which brokers get it; one of Kafka's format is created by the first that serves
                Kafka's clients, or the first, for all.

        Raises:
            HermesError: it wasn't created; or on some brokers only, and the text says on which.
        """
        if settings.get(FORMAT) == FORMAT_KAFKA:
            hosts = [*(each for each in hosts if each.serves_kafka), *hosts][:1]
        places = {each.broker_id: each.address for each in hosts}
        self._on_each(
            places, "created", lambda consumer: consumer.create_topic(name, dict(settings))
        )

    def alter(
        self, topic: TopicView, settings: Mapping[str, str], reset: Sequence[str] = ()
    ) -> None:
        """Set or reset settings of a topic, wherever it is. Raises as `create`."""
        self._on_each(
            _places(topic),
            "altered",
            lambda consumer: consumer.alter_topic(topic.name, dict(settings), reset),
        )

    def delete(self, topic: TopicView) -> None:
        """Delete a topic with its messages, wherever it is. Raises as `create`."""
        self._on_each(_places(topic), "deleted", lambda consumer: consumer.delete_topic(topic.name))

    def _on_each(
        self,
        places: Mapping[int, BrokerAddress],
        done: str,
        change: Callable[[SimpleConsumer], None],
    ) -> None:
        finished: list[int] = []
        try:
            for broker_id, address in places.items():
                change(self._cluster.consumer(address))
                finished.append(broker_id)
        except HermesError as error:
            if not finished:
                raise
            raise ClientError(
                f"broker {broker_id}: {error} (it is {done} on broker "
                f"{', '.join(map(str, finished))} by now)"
            ) from error
        finally:
            self._cache.forget()


def _default(name: str, of_broker: SettingDescription) -> str:
    if name == _MAX_BATCH and of_broker.origin == "default":
        return FORM_SETTINGS[name].kind.show(MAX_BATCH_BYTES)
    return of_broker.value


def is_shared(topic: TopicView) -> bool:
    """Whether a topic belongs to the cluster: its partitions are numbered across brokers."""
    numbers = [row.number for row in topic.partitions]
    return topic.counts_messages and len(set(numbers)) == len(numbers)


def partition_count(topic: TopicView) -> int:
    """How many partitions a topic has: in all if it is the cluster's, else on each broker."""
    if is_shared(topic):
        return len(topic.partitions)
    return max((row.number + 1 for row in topic.partitions), default=0)


def _places(topic: TopicView) -> dict[int, BrokerAddress]:
    places = dict(topic.addresses)
    return dict(list(places.items())[:1]) if is_shared(topic) else places


def format_of(topic: TopicView) -> str:
    return FORMAT_KAFKA if topic.counts_messages else FORMAT_0_7
