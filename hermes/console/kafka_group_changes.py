"""Resets and deletes groups of Kafka's clients, by asking their coordinators."""

from collections.abc import Callable

from hermes.client.kafka_groups import KafkaGroups
from hermes.client.places import PartitionPlace
from hermes.client.resets import check_inactive
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.group_changes import NO_OFFSETS, OffsetChange, changed_since
from hermes.errors import HermesError


class KafkaGroupChanger:
    def __init__(self, cluster: ClusterClient, cache: ReadCache) -> None:
        self._cluster = cluster
        self._cache = cache

    def preview(
        self,
        name: str,
        topic: str,
        place: PartitionPlace,
        sees: Callable[[str], bool] = lambda topic: True,
    ) -> list[OffsetChange]:
        def find(groups: KafkaGroups) -> list[OffsetChange]:
            check_inactive(name, (each.name for each in groups.members(name)))
            stored = {
                each: offset
                for each, offset in sorted(groups.offsets(name).items())
                if topic in ("", each[0]) and sees(each[0])
            }
            if not stored:
                raise HermesError(NO_OFFSETS)
            kafka = self._count_messages({each for each, _ in stored})
            return [_change(groups, each, stored[each], place, each[0] in kafka) for each in stored]

        return self._cluster.with_kafka_groups(find)

    def _count_messages(self, topics: set[str]) -> set[str]:
        return {
            topic.topic
            for state in self._cluster.read(sorted(topics))
            for topic in state.topics
            if topic.holds_records
        }

    def reset(self, name: str, changes: list[OffsetChange]) -> None:
        def store(groups: KafkaGroups) -> None:
            check_inactive(name, (each.name for each in groups.members(name)))
            known = {
                (topic, str(number)): (number, offset)
                for (topic, number), offset in groups.offsets(name).items()
            }
            offsets: dict[tuple[str, int], int] = {}
            for change in changes:
                number, offset = known.get((change.topic, change.partition), (-1, None))
                if offset is None or offset != change.before:
                    raise changed_since(change)
                offsets[change.topic, number] = change.after
            groups.store(name, offsets)

        self._change(store)

    def delete(self, name: str) -> None:
        def delete(groups: KafkaGroups) -> None:
            check_inactive(name, (each.name for each in groups.members(name)))
            groups.delete(name)

        self._change(delete)

    def _change(self, work: Callable[[KafkaGroups], None]) -> None:
        try:
            self._cluster.with_kafka_groups(work)
        finally:
            self._cache.forget()


def _change(
    groups: KafkaGroups,
    at: tuple[str, int],
    stored: int,
    place: PartitionPlace,
    counts_messages: bool,
) -> OffsetChange:
    topic, number = at
    after = groups.reset(at, stored, place)
    end = groups.offset_at(at)
    return OffsetChange(topic, str(number), stored, after, end, counts_messages)
