"""Reads a source by Kafka's protocol: one process claims all partitions of the topics.

It takes the place of the group's membership. How far it is, it commits as a group without members,
as consumers that assign themselves their partitions do: Kafka's tools show it like any other.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import FetchThread, MakeFetcher
from hermes.client.groups.streams import Claim
from hermes.client.metrics import ConsumerCounters
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.coordination.topic_filters import TopicFilter
from hermes.errors import BrokerUnavailableError, HermesError
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import (
    ClusterLook,
    KafkaCluster,
    check,
    kafka_partition,
)
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.source_stream import SourceStream

_LOOK_SECONDS: Final = 5.0
_COMMIT_SECONDS: Final = 1.0

_Place = tuple[str, int]


class KafkaReader:
    """Claims every partition of the topics that are chosen.

    Args:
        make_claim: called as `SourceClaim` without its first three arguments.
    """

    def __init__(
        self,
        source: str,
        group: str,
        cluster: KafkaCluster,
        topics: TopicFilter,
        config: ConsumerConfig,
        stream: SourceStream,
        make_claim: Callable[..., SourceClaim],
        make_fetcher: MakeFetcher,
        problems: Problems,
    ) -> None:
        self._what = f"source {source}"
        self._group = group
        self._cluster = cluster
        self._topics = topics
        self._config = config
        self._stream = stream
        self._make_claim = make_claim
        self._make_fetcher = make_fetcher
        self._problems = problems
        self._lease = Lease(0)
        self._lease.until = math.inf
        self._look = ClusterLook("", {}, {})
        self._topic_ids: dict[str, UUID] = {}
        self._claims: dict[_Place, SourceClaim] = {}
        self._committed: dict[_Place, int] = {}
        self._fetchers: dict[int, FetchThread] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hermes-{self._what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake_fetchers(self) -> None:
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def partitions(self, topic: str) -> set[BrokerPartition]:
        """The partitions of a topic; empty where it isn't known (yet)."""
        found = self._look.topics.get(topic)
        return set() if found is None else {kafka_partition(each) for each in found.leaders}

    def offset(self, topic: str, number: int, time_ms: int) -> int:
        """Ask a partition's leader; HermesError if that can't answer."""
        return self._cluster.offset_at(topic, number, self._leader((topic, number)), time_ms)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        try:
            self._commit()
        except HermesError as error:
            self._problems.note(f"{self._what}: the last offsets are not committed: {error}")
        claims = list(self._claims.values())
        self._stream.revoke(claims, lost=True)
        self._stream.replace_claims(remove=claims)
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for fetcher in self._fetchers.values():
            fetcher.join()

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        next_look = 0.0
        while not self._stopped.is_set():
            try:
                if time.monotonic() >= next_look:
                    self._look_around()
                    next_look = time.monotonic() + _LOOK_SECONDS
                self._commit()
                self._problems.end(self._what)
            except HermesError as error:
                self._problems.begin(self._what, str(error))
                next_look = 0.0
            self._stopped.wait(_COMMIT_SECONDS)

    def _look_around(self) -> None:
        look = self._cluster.look()
        wanted = [
            (topic, number)
            for topic, found in look.topics.items()
            if self._topics.allows(topic)
            for number in found.leaders
        ]
        ids = {topic: found.topic_id for topic, found in look.topics.items()}
        renewed = {
            topic for topic, known in self._topic_ids.items() if ids.get(topic, known) != known
        }
        gone = [  # the topic was deleted
            claim
            for place, claim in self._claims.items()
            if place not in wanted or claim.topic in renewed
        ]
        self._stream.revoke(gone, lost=True)
        for claim in gone:
            del self._claims[claim.topic, claim.partition.partition]
        new = [place for place in wanted if place not in self._claims]
        committed = self._read_committed([place for place in new if place[0] not in renewed])
        self._look = look
        self._topic_ids |= {topic: each for topic, each in ids.items() if each is not None}
        made = {place: self._claim(place) for place in new}
        for place, claim in made.items():
            if place in committed:
                claim.start_at(committed[place])
            if claim.topic in renewed:
                claim.start_over_at = 0
                self._problems.note(f"{claim}: the topic was made anew; starting over at 0")
        self._claims |= made
        self._stream.replace_claims(list(made.values()), gone)
        self._place_fetchers(look)

    def _place_fetchers(self, look: ClusterLook) -> None:
        for broker_id, fetcher in list(self._fetchers.items()):
            if fetcher.address != look.brokers.get(broker_id):
                del self._fetchers[broker_id]
                fetcher.stop()
                fetcher.join()
        for broker_id, address in look.brokers.items():
            if broker_id not in self._fetchers and self._claims_of(broker_id)[0]:
                self._fetchers[broker_id] = self._make_fetcher(
                    broker_id,
                    address,
                    self._config,
                    self._starts_over,
                    self._claims_of,
                    ConsumerCounters(),
                    topic_ids=self._topic_ids,
                )

    def _claim(self, place: _Place) -> SourceClaim:
        topic, number = place
        return self._make_claim(topic, kafka_partition(number), "", self._stream.lock, self._lease)

    def _leader(self, place: _Place) -> int:
        topic, number = place
        found = self._look.topics.get(topic)
        leader = -1 if found is None else found.leaders.get(number, -1)
        if leader < 0:
            raise BrokerUnavailableError(f"{topic} {number} has no leader now")
        return leader

    def _claims_of(self, broker_id: int) -> tuple[Sequence[Claim], int]:
        claims, topics = dict(self._claims), self._look.topics
        share = max(1, self._config.prefetch_bytes // max(1, len(claims)))
        found = [
            claim
            for (topic, number), claim in claims.items()
            if topic in topics and topics[topic].leaders.get(number) == broker_id
        ]
        return found, share

    # -- offsets --------------------------------------------------------------------------------

    def _read_committed(self, places: Sequence[_Place]) -> dict[_Place, int]:
        if not places:
            return {}
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in _by_topic(dict.fromkeys(places)).items()
        ]
        asked = [{"group_id": self._group, "topics": topics}]
        answer = self._cluster.ask_coordinator(
            self._group, "OffsetFetch", 8, groups=asked, require_stable=True
        )
        (group,) = answer.groups
        check(group.error_code, f"group {self._group!r}")
        found: dict[_Place, int] = {}
        for topic in group.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {self._group!r}, {topic.name}")
                if each.committed_offset >= 0:
                    found[topic.name, each.partition_index] = each.committed_offset
        self._committed |= found
        return found

    def _commit(self) -> None:
        """Commit up to where the target has everything."""
        reached = {
            place: claim.covered
            for place, claim in self._claims.items()
            if claim.covered is not None and claim.covered != self._committed.get(place)
        }
        if not reached:
            return
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": reached[topic, number],
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in _by_topic(reached).items()
        ]
        answer = self._cluster.ask_coordinator(
            self._group,
            "OffsetCommit",
            9,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {self._group!r}, {topic.name}")
        self._committed |= reached

    def _starts_over(self, _claim: Claim, _offset: int) -> bool:
        """Nobody else has the partition; what is committed follows when the target has it."""
        return True


def _by_topic(places: Mapping[_Place, Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
    return found
