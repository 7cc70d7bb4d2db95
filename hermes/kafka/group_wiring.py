"""How a broker gets a coordinator: its settings, its store, its metrics."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final
from uuid import UUID

from hermes.broker.serving import ServingBroker
from hermes.cluster.cluster_topics import ClusterTopics
from hermes.coordination.nodes import TreeSession
from hermes.errors import CoordinationUnavailableError
from hermes.groups.consumer_values import ConsumerSettings, TopicSize
from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import CoordinatorSettings, LocalGroups
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import GroupStore
from hermes.groups.values import GroupSettings, State
from hermes.logs import ModuleLogger
from hermes.metrics import Family, Series
from hermes.server.settings import Settings

#: The file with the groups of a broker without coordination.
FILE_NAME: Final = ".hermes_kafka_groups"

_log = ModuleLogger()


def mount_groups(
    run: ServingBroker, topics: ClusterTopics, connect: Callable[[], TreeSession | None]
) -> GroupCoordinator:
    """Make the coordinator of a broker whose ports are about to open.

    Args:
        connect: makes a session with coordination; None while there can't be one.

    Raises:
        StorageError: what is stored of groups in the data directory can't be read.
    """
    own = run.coordination.own_nodes
    bounds = coordinator_settings(run.settings)

    def settings_changed() -> None:
        nonlocal bounds
        bounds = coordinator_settings(run.settings)

    run.settings.on_change(settings_changed)
    groups = GroupCoordinator(
        LocalGroups(
            _store(run, connect),
            run.config.broker_id,
            partial(getattr, topics, "live"),
            lambda: bounds,
            TopicSizes(topics),
            run.reactor,
            run.now_ms,
            run.in_thread,
            run.group_thread.call_then,
            None if own is None else own.call_then,
        )
    )
    topics.on_gone(groups.expiry.topic_gone)
    run.on_started.append(groups.begin)
    run.on_stopping.append(groups.stop)
    run.more_series.append(lambda: series(groups.local))
    if not run.coordination.is_enabled:  # else it is read there
        run.group_offsets.append(lambda: _offsets(groups.local))
    return groups


class TopicSizes:
    """The topics, as consumer groups see them; see `TopicLookup`."""

    def __init__(self, topics: ClusterTopics) -> None:
        self._topics = topics

    @property
    def revision(self) -> int:
        return self._topics.revision

    def size_of(self, name: str) -> TopicSize | None:
        found = self._topics.get(name)
        return None if found is None else TopicSize(found.id, len(found.partitions))

    def is_gone(self, name: str, topic_id: UUID) -> bool:
        return self._topics.is_gone(name, topic_id)


def _store(run: ServingBroker, connect: Callable[[], TreeSession | None]) -> GroupStore:
    own = run.coordination.own_nodes
    if own is not None:
        tree = OffsetTree(lambda: own)
        own.on_lost.append(tree.distrust)
        return tree
    if run.coordination.is_enabled:

        def open_session() -> TreeSession:
            session = connect()
            if session is None:
                raise CoordinationUnavailableError("the broker is not registered")
            session.start()
            return session

        return OffsetTree(open_session)
    path = os.path.join(run.directory.path, FILE_NAME)
    return OffsetFile(
        path, run.directory.files, lambda what: _log.warn("{path}: {what}", path=path, what=what)
    )


def coordinator_settings(settings: Settings) -> CoordinatorSettings:
    config = settings.config
    return CoordinatorSettings(
        GroupSettings(
            config.group_initial_rebalance_delay_ms / 1000,
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_members,
        ),
        ConsumerSettings(
            config.group_consumer_session_timeout_ms,
            config.group_consumer_heartbeat_interval_ms,
            config.group_max_members,
            config.group_consumer_assignors,
        ),
        config.max_groups,
        config.group_memory_bytes,
        config.offsets_retention_ms,
    )


def _offsets(groups: LocalGroups) -> Iterator[tuple[tuple[str, str, int], int]]:
    for name, entry in groups.entries.items():
        for partition, committed in entry.offsets.items():
            yield (name, *partition), committed.offset


# -- metrics ------------------------------------------------------------------------------------

_GROUPS: Final = Family(
    "hermes_kafka_groups", "gauge", "Groups of Kafka's consumers in memory, by state.", ("state",)
)
_MEMBERS: Final = Family("hermes_kafka_group_members", "gauge", "Their members.")
_OFFSETS: Final = Family("hermes_kafka_group_offsets", "gauge", "The offsets that they have.")
_MEMORY: Final = Family("hermes_kafka_group_memory_bytes", "gauge", "What they hold, about.")
#: By what `Counts` calls what they count.
_COUNTERS: Final = {
    "rebalances": Family(
        "hermes_kafka_group_rebalances_total", "counter", "Rebalances that came to their end."
    ),
    "commits": Family(
        "hermes_kafka_group_commits_total", "counter", "Offsets that were committed."
    ),
    "expired": Family(
        "hermes_kafka_group_offsets_expired_total", "counter", "Offsets that have expired."
    ),
    "moved": Family(
        "hermes_kafka_groups_moved_total", "counter", "Groups that became another broker's."
    ),
    "failures": Family(
        "hermes_kafka_group_store_failures_total",
        "counter",
        "Times that groups could not be read or written.",
    ),
}

#: All of them, by name.
FAMILIES: Final = {
    each.name: each for each in (_GROUPS, _MEMBERS, _OFFSETS, _MEMORY, *_COUNTERS.values())
}


def series(groups: LocalGroups) -> Iterator[Series]:
    entries = list(groups.entries.values())
    states = [each.group.state for each in entries]
    yield _GROUPS, [((str(each),), states.count(each)) for each in State if each != State.DEAD]
    yield _MEMBERS, [((), sum(len(each.group.members) for each in entries))]
    yield _OFFSETS, [((), sum(len(each.offsets) for each in entries))]
    yield _MEMORY, [((), groups.held_bytes)]
    for name, family in _COUNTERS.items():
        yield family, [((), getattr(groups.counts, name))]
