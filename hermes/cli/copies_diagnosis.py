"""What `hermes doctor` finds out about copies of partitions, from coordination."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from hermes.client.kafka_replicas import Partition, stored_partitions
from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_topic_settings
from hermes.coordination.kafka_topics import parse_topic, topic_node_path
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.nodes import TreeSession
from hermes.errors import ConfigError, CoordinationNotAuthorizedError, InvalidNodeError
from hermes.transactions.state import STATE_TOPIC

Level = Literal["ok", "notice", "problem"]
_Found = Iterator[tuple[Level, str]]

#: How many partitions are named.
_MOST_NAMED: Final = 5

#: From how many times its share on a broker leads too much.
_UNEVEN: Final = 2

_MIN_INSYNC: Final = "min_insync_replicas"
_WHY: Final = "`hermes replicas list --problems` tells why"


def find_about_copies(
    session: TreeSession,
    brokers: Mapping[int, BrokerListeners],
    config: BrokerConfig | None,
    *,
    is_embedded: Callable[[], bool],
) -> _Found:
    """How bad what was found is, and what that is.

    `config`: what broker.yaml sets for topics that say nothing of themselves; None where that isn't
    known. `is_embedded`: asks whether coordination is one process, in one of the brokers.
    """
    try:
        partitions = [each for each, _ in stored_partitions(session)]
    except CoordinationNotAuthorizedError:
        return
    if not partitions:
        return
    yield "ok", f"{len(partitions)} partitions have several copies"
    yield from _unavailable(partitions, brokers)
    yield from _too_few(partitions, brokers, _least_in_sync(session, partitions, config))
    yield from _transactions(session, partitions, brokers)
    yield from _racks(partitions, brokers)
    yield from _uneven(partitions, brokers)
    without = [number for number, each in brokers.items() if not each.replication]
    if without:
        yield (
            "notice",
            f"broker {_listed(without)} can't keep copies: as long as it is there no topic gets "
            "several; give it a kafka_listen, or upgrade it",
        )
    if is_embedded():
        yield (
            "problem",
            "coordination is one process, in one broker: while that is down nobody is elected; use "
            "three ZooKeepers (docs/replication.md)",
        )


def _unavailable(partitions: Iterable[Partition], brokers: Mapping[int, BrokerListeners]) -> _Found:
    unled, behind, waiting, away = list[str](), list[str](), list[str](), set[int]()
    for each in partitions:
        if each.leader not in brokers:
            unled.append(_name(each))
        elif each.is_under_replicated:
            behind.append(_name(each))
        if each.adding - brokers.keys():
            waiting.append(_name(each))
            away |= each.adding - brokers.keys()
    if unled:
        yield "problem", f"nobody leads {_named(unled)}: {_WHY}"
    if behind:
        yield "problem", f"copies aren't in sync of {_named(behind)}: {_WHY}"
    if waiting:
        yield (
            "problem",
            f"moves of {_named(waiting)} wait for broker {_listed(away)}, which isn't registered: "
            "start it, or undo them (`hermes replicas move --cancel`)",
        )


def _too_few(
    partitions: Iterable[Partition],
    brokers: Mapping[int, BrokerListeners],
    least_in_sync: Callable[[Partition], int],
) -> _Found:
    refusing, brittle = list[str](), list[str]()
    for each in partitions:
        wanted = least_in_sync(each)
        if sum(one in brokers for one in each.replicas) < wanted:
            refusing.append(_name(each))
        elif wanted == len(each.target) > 1:
            brittle.append(_name(each))
    if refusing:
        yield (
            "problem",
            f"fewer brokers with copies run than min_insync_replicas says of {_named(refusing)}: "
            "acks=all is refused; start them, or lower it (`hermes topics alter --set`)",
        )
    if brittle:
        yield (
            "notice",
            f"min_insync_replicas is as much as there are copies of {_named(brittle)}: acks=all is "
            "refused while any of their brokers restarts; lower it, or add a copy "
            "(`hermes replicas move --replicas`)",
        )


def _transactions(
    session: TreeSession,
    partitions: Iterable[Partition],
    brokers: Mapping[int, BrokerListeners],
) -> _Found:
    has_copies = any(each.place[0] == STATE_TOPIC for each in partitions)
    if not has_copies and len(brokers) > 1 and session.get(topic_node_path(STATE_TOPIC)):
        yield (
            "notice",
            f"{STATE_TOPIC} has one copy: transactions whose state is lost with its broker are "
            f"never ended; add copies (`hermes replicas move --topics {STATE_TOPIC} --replicas "
            f"{min(len(brokers), 3)}`)",
        )


def _racks(partitions: Iterable[Partition], brokers: Mapping[int, BrokerListeners]) -> _Found:
    racks = {number: each.rack for number, each in brokers.items()}
    known = set(racks.values()) - {""}
    unknown = [number for number, rack in racks.items() if not rack]
    if not known:
        return
    if unknown:
        yield "notice", f"broker {_listed(unknown)} says no rack, and others do: set `rack`"
    together = []
    for each in partitions:
        used = {racks.get(one, "") for one in each.target}
        if len(each.target) > 1 and len(used) == 1 and used < known:
            together.append(_name(each))
    if together:
        yield (
            "problem",
            f"all copies are in one rack of {_named(together)}: move one to another "
            "(`hermes replicas move TOPIC:PARTITION BROKERS`)",
        )
    elif len(known) == 1 and not unknown:
        yield "notice", f"all brokers are in rack {known.pop()}: its loss is that of all copies"


def _uneven(partitions: Sequence[Partition], brokers: Mapping[int, BrokerListeners]) -> _Found:
    led = Counter(each.leader for each in partitions if each.leader in brokers)
    share = len(partitions) / max(len(brokers), 1)
    for broker_id, leads in led.most_common(1):
        if leads <= _UNEVEN * share + 1:
            return
        preferred = sum(each.leader == each.target[0] == broker_id for each in partitions)
        remedy = "spread it by `hermes replicas elect`"
        if preferred > _UNEVEN * share + 1:
            remedy = "it is preferred for most: put others first with `hermes replicas move`"
        yield "problem", f"broker {broker_id} leads {leads} of them: {remedy}"


def _least_in_sync(
    session: TreeSession, partitions: Iterable[Partition], config: BrokerConfig | None
) -> Callable[[Partition], int]:
    names = list(dict.fromkeys(each.place[0] for each in partitions))
    paths = [topic_node_path(each) for each in names]
    given: dict[str, int | None] = {}
    for name, path, node in zip(names, paths, session.get_all(paths), strict=True):
        given[name] = None if config is None else config.topic(name).min_insync_replicas
        try:
            settings = {} if node is None else parse_topic(path, node.value).settings
            if _MIN_INSYNC in settings:
                text = {_MIN_INSYNC: settings[_MIN_INSYNC]}
                given[name] = parse_topic_settings(text).min_insync_replicas
        except (InvalidNodeError, ConfigError):  # said where nodes are read, or unknown to us
            continue

    def least(partition: Partition) -> int:
        copies, wanted = len(partition.target), given[partition.place[0]]
        return (copies + 1) // 2 if wanted is None else min(wanted, copies)

    return least


def _name(partition: Partition) -> str:
    return f"{partition.place[0]}-{partition.place[1]}"


def _named(partitions: Sequence[str]) -> str:
    more = len(partitions) - _MOST_NAMED
    return ", ".join(partitions[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
