"""Paths and values in ZooKeeper, as Kafka 0.7 writes them, and the assignment. Pure functions.

    /brokers/ids/<id>                                   ephemeral   <creator>:<host>:<port>
    /brokers/topics/<topic>/<broker id>                 ephemeral   number of partitions
    /consumers/<group>/ids/<consumer id>                ephemeral   subscription, see below
    /consumers/<group>/owners/<topic>/<broker>-<part>   ephemeral   <consumer id>-<thread>
    /consumers/<group>/offsets/<topic>/<broker>-<part>  persistent  next offset to consume

Parents are persistent and empty; numbers are decimal. A subscription is one of

    { "clicks": 2,"views": 1 }      streams by topic
    *2*click.*                      2 streams of each topic that a white list allows
    !2!click.*                      ... that a black list doesn't forbid
    clicks                          one stream of one topic (other clients than Kafka's own)

Writing is exact to the byte, reading is liberal: other clients share the same tree. What can't be
understood raises InvalidNodeError, whose text names the path.

Who in a group gets which partitions is computed alike by every member, Kafka 0.7's included. For
each topic, the partitions and the streams of the whole group are put in order, and each stream
takes a contiguous range: with 5 partitions and 2 streams the first takes 3, the second 2. Order
is that of *texts*: broker 10 comes before broker 2, and stream 10 before stream 2. No member tells
another what is whose; they agree because they see the same tree.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hermes.config.kinds import MAX_PARTITIONS
from hermes.coordination.topic_filters import Blacklist, TopicFilter, Whitelist
from hermes.errors import ConfigError, InvalidNodeError
from hermes.quoting import quoted

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
CONSUMERS: Final = "/consumers"
#: What mirrors say about themselves, and where topics come from: mirrors.py, origins.py.
MIRRORS: Final = "/mirrors"
ORIGINS: Final = "/cluster/origins"

# What ZooKeeper refuses within a path, and the slash, which would make it another path.
_REFUSED: Final = re.compile(
    r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FILTER: Final = re.compile(r"(?:\*([0-9]+)\*|!([0-9]+)!)(.*)", re.ASCII | re.DOTALL)
_INT32_END: Final = 1 << 31
_INT64_END: Final = 1 << 63

# Nobody has more streams of a topic in a consumer: a corrupt value, like one above MAX_PARTITIONS,
# must not make every member of a group count to two billion.
_MOST_STREAMS: Final = 1_000
_MOST_TOPICS: Final = 10_000
# Of a broker's id or a partition's number: 32 bits.
_MOST_DIGITS: Final = 10


class BrokerNode(NamedTuple):
    """`host`: the name or address that clients reach the broker by; no colons.

    `creator`: names one life of the broker: its host and the ms since 1970 when it registered.
    """

    creator: str
    host: str
    port: int


class BrokerPartition(NamedTuple):
    """One partition of a topic in the whole cluster. As text, `<broker id>-<partition>`."""

    broker_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.broker_id}-{self.partition}"


class GroupPaths(NamedTuple):
    """The paths of one consumer group; those of a topic's owners and offsets are parents."""

    group: str

    @property
    def root(self) -> str:
        return f"{CONSUMERS}/{self.group}"

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    def member(self, consumer_id: str) -> str:
        return f"{self.root}/ids/{consumer_id}"

    def owners(self, topic: str) -> str:
        return f"{self.root}/owners/{topic}"

    def owner(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self.root}/owners/{topic}/{partition}"

    def offsets(self, topic: str) -> str:
        return f"{self.root}/offsets/{topic}"

    def offset(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self.root}/offsets/{topic}/{partition}"


class Subscription(NamedTuple):
    """What a member of a group wants.

    `streams`: how many, by topic; empty when there is a `topic_filter`. `filter_streams`: how many
    of each topic that the filter allows.
    """

    streams: Mapping[str, int]
    topic_filter: TopicFilter | None = None
    filter_streams: int = 0

    def streams_of(self, topic: str) -> int:
        if self.topic_filter is not None:
            return self.filter_streams if self.topic_filter.allows(topic) else 0
        return self.streams.get(topic, 0)


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str, broker_id: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/{broker_id}"


def check_node_name(key: str, name: str) -> None:
    """Refuse, with a ConfigError, a group's or a consumer's name that can't be part of a path."""
    if not name or name in (".", ".."):
        raise ConfigError(key, f"{quoted(name)} can't be part of a ZooKeeper path")
    if refused := _REFUSED.search(name):
        raise ConfigError(
            key, f"{quoted(name)} holds U+{ord(refused[0]):04X}, which ZooKeeper refuses"
        )


def make_consumer_id(group: str, host: str, now_ms: int, token: str) -> str:
    """Make a consumer's id: `<group>_<host>-<ms>-<token>`.

    The token is 8 hex digits, at random, or whatever else distinguishes consumers of a host.
    """
    return f"{group}_{host}-{now_ms}-{token}"


# -- brokers ------------------------------------------------------------------------------------


def format_broker(host: str, port: int, now_ms: int) -> bytes:
    """Write a broker's node: the host is a name or an IPv4 address.

    Raises ConfigError: it holds a colon, at which 0.7's clients split the value.
    """
    if ":" in host or not host:
        raise ConfigError(
            "advertised_host",
            f"{quoted(host)} can't be registered: Kafka 0.7's clients split the address at colons; "
            "give a name or an IPv4 address",
        )
    return f"{host}-{now_ms}:{host}:{port}".encode()


def parse_broker(path: str, value: bytes) -> BrokerNode:
    """Read a broker's node; `host:port` alone is read too."""
    text = _text(path, value)
    creator, _, address = text.partition(":")
    host, colon, port = address.rpartition(":")
    if not colon:
        creator, host, port = "", creator, address
    if not host or not _is_number(port) or not 0 < int(port) < 65536:
        raise _invalid(path, "<creator>:<host>:<port>", text)
    return BrokerNode(creator, host, int(port))


def parse_broker_id(path: str, name: str) -> int:
    if not _is_name(name):
        raise _invalid(path, "a broker id", name)
    return int(name)


# -- numbers ------------------------------------------------------------------------------------


def format_number(number: int) -> bytes:
    return b"%d" % number


def parse_partition_count(path: str, value: bytes) -> int:
    count = parse_number(path, value)
    if not 0 <= count <= MAX_PARTITIONS:
        raise _invalid(path, f"at most {MAX_PARTITIONS} partitions", str(count))
    return count


def parse_number(path: str, value: bytes) -> int:
    text = _text(path, value).strip()
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not -_INT64_END <= number < _INT64_END:
        raise _invalid(path, "a decimal number", text)
    return number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _is_name(text: str) -> bool:
    """Whether it is a number of 32 bits as it is written in a path: 7, but not 007."""
    return _is_number(text) and str(int(text)) == text and int(text) < _INT32_END


def parse_partition(path: str, name: str) -> BrokerPartition:
    broker_id, dash, partition = name.partition("-")
    if not (dash and _is_name(broker_id) and _is_name(partition)):
        raise _invalid(path, "<broker>-<partition>", name)
    return BrokerPartition(int(broker_id), int(partition))


# -- subscriptions ------------------------------------------------------------------------------


def format_subscription(subscription: Subscription) -> bytes:
    """Write what a member of a group wants, as 0.7 does: nothing in a topic's name is escaped."""
    chosen = subscription.topic_filter
    if chosen is not None:
        mark = "!" if isinstance(chosen, Blacklist) else "*"
        return f"{mark}{subscription.filter_streams}{mark}{chosen.regex}".encode()
    entries = (f'"{topic}": {count}' for topic, count in subscription.streams.items())
    return f"{{ {','.join(entries)} }}".encode()


def parse_subscription(path: str, value: bytes) -> Subscription:
    """Read what a member of a group wants.

    Raises InvalidNodeError: it can't be understood, or its regular expression can't be evaluated
    here; without it nobody knows which partitions are whose.
    """
    text = _text(path, value)
    if found := _FILTER.fullmatch(text):
        white, black, regex = found.groups()
        try:
            chosen = Whitelist(regex) if white else Blacklist(regex)
        except ConfigError as error:
            raise InvalidNodeError(f"{path}: {error}") from error
        count = white or black
        if not _is_number(count) or int(count) > _MOST_STREAMS:
            raise _invalid(path, f"at most {_MOST_STREAMS} streams", text)
        return Subscription({}, chosen, int(count))
    if text.lstrip().startswith("{"):
        return Subscription(_parse_streams(path, text))
    if not text or _REFUSED.search(text):
        raise _invalid(path, "topics", text)
    return Subscription({text: 1})


def _parse_streams(path: str, text: str) -> Mapping[str, int]:
    try:
        streams = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, "topics as JSON", text) from error
    if len(streams) > _MOST_TOPICS:
        raise _invalid(path, f"at most {_MOST_TOPICS} topics", text)
    for count in streams.values():
        if type(count) is not int or not 0 <= count <= _MOST_STREAMS:
            raise _invalid(path, f"numbers of streams, up to {_MOST_STREAMS} of a topic", text)
    result: Mapping[str, int] = streams
    return result


def _text(path: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise _invalid(path, "UTF-8", value) from error


def _invalid(path: str, expected: str, found: str | bytes) -> InvalidNodeError:
    shown = quoted(found) if found else "nothing"
    return InvalidNodeError(f"{path}: expected {expected}, got {shown}")


# -- the assignment -----------------------------------------------------------------------------

#: Topic -> partition -> the stream that it belongs to, as `<consumer id>-<number>`.
Assignment = dict[str, dict[BrokerPartition, str]]


def stream_ids(consumer_id: str, count: int) -> list[str]:
    return [f"{consumer_id}-{number}" for number in range(count)]


def assign(
    partitions_of: Mapping[str, Mapping[int, Sequence[int]]],
    members: Mapping[str, Subscription],
    on_fault: Callable[[str, ConfigError], object],
) -> Assignment:
    """Compute the assignment of several topics.

    Args:
        partitions_of: topic -> broker id -> the numbers of its partitions, for every topic that
            matters.
        members: consumer id -> what it wants, for every member of the group.
        on_fault: called with a member whose filter nobody can evaluate, which gets nothing.

    Returns:
        The stream of every partition; topics that nobody wants are left out.
    """
    wanted: dict[str, dict[str, int]] = {}
    for consumer_id, subscription in members.items():
        try:
            wanted[consumer_id] = {t: subscription.streams_of(t) for t in partitions_of}
        except ConfigError as error:
            on_fault(consumer_id, error)
    assignment: Assignment = {}
    for topic, by_broker in partitions_of.items():
        streams = [
            stream
            for consumer_id, streams_of in wanted.items()
            for stream in stream_ids(consumer_id, streams_of[topic])
        ]
        partitions = [
            BrokerPartition(broker_id, number)
            for broker_id, numbers in by_broker.items()
            for number in numbers
        ]
        if streams:
            assignment[topic] = assign_topic(partitions, streams)
    return assignment


def assign_topic(
    partitions: Iterable[BrokerPartition], streams: Iterable[str]
) -> dict[BrokerPartition, str]:
    """In 0.7's order. Partitions and streams, of which there is at least one, come in any order."""
    ordered = sorted(partitions, key=lambda each: _java_order(str(each)))
    takers = sorted(set(streams), key=_java_order)
    share, extras = divmod(len(ordered), len(takers))
    assigned: dict[BrokerPartition, str] = {}
    start = 0
    for position, stream in enumerate(takers):
        end = start + share + (position < extras)
        assigned.update(dict.fromkeys(ordered[start:end], stream))
        start = end
    return assigned


def _java_order(text: str) -> bytes:
    """Java compares UTF-16 units, Python code points: they differ above U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")
