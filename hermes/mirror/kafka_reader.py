"""Reads a source by Kafka's protocol: one process claims all partitions of the topics.

How far it is, it commits as a group without members, as consumers that assign themselves their
partitions do: Kafka's tools show it like any other.
"""

import time
from typing import Final
from uuid import UUID

from hermes.client.groups.streams import Claim
from hermes.coordination.layout import BrokerPartition
from hermes.errors import BrokerUnavailableError, HermesError
from hermes.mirror.kafka_cluster import (
    ClusterLook,
    KafkaCluster,
    Place,
    check,
    kafka_partition,
)
from hermes.mirror.whole_source import Reading, WholeSource
from hermes.protocol import NOBODY

_LOOK_SECONDS: Final = 5.0
_COMMIT_SECONDS: Final = 1.0


class KafkaReader(WholeSource[Place]):
    """Reads a cluster by Kafka's protocol."""

    def __init__(self, source: str, group: str, cluster: KafkaCluster, reading: Reading) -> None:
        super().__init__(source, reading)
        self._group = group
        self._cluster = cluster
        self._look = ClusterLook("", {}, {})
        self._topic_ids: dict[str, UUID] = {}
        self._committed: dict[Place, int] = {}

    def partitions(self, topic: str) -> set[BrokerPartition]:
        found = self._look.topics.get(topic)
        return set() if found is None else {kafka_partition(each) for each in found.leaders}

    def offset(self, topic: str, number: int, time_ms: int) -> int:
        """Ask a partition's leader; HermesError if that can't answer."""
        return self._cluster.offset_at((topic, number), self._leader((topic, number)), time_ms)

    def _ended(self) -> None:
        try:
            self._commit()
        except HermesError as error:
            self._problems.note(f"{self._what}: the last offsets are not committed: {error}")

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
        wanted = {
            (topic, number)
            for topic, found in look.topics.items()
            if self._topics.allows(topic)
            for number in found.leaders
        }
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
        self._stream.replace_claims(remove=gone)
        for claim in gone:
            del self._claims[claim.topic, claim.partition.partition]
        new = sorted(wanted - self._claims.keys())
        known = [place for place in new if place[0] not in renewed]
        committed = self._cluster.committed(self._group, known, stable=True)
        self._committed |= committed
        self._look = look
        self._topic_ids |= {topic: each for topic, each in ids.items() if each is not None}
        made = {place: self._claim(place[0], kafka_partition(place[1])) for place in new}
        for place, claim in made.items():
            if place in committed:
                claim.start_at(committed[place])
            if claim.topic in renewed:
                claim.start_over_at = 0
                self._problems.note(f"{claim}: the topic was made anew; starting over at 0")
        self._claims |= made
        self._stream.replace_claims(list(made.values()))
        self._place_fetchers(look)

    def _place_fetchers(self, look: ClusterLook) -> None:
        for broker_id, fetcher in list(self._fetchers.items()):
            if fetcher.address != look.brokers.get(broker_id):
                self._stop_fetcher(broker_id)
        for broker_id, address in look.brokers.items():
            if broker_id not in self._fetchers and self._claims_of(broker_id)[0]:
                self._fetch_from(broker_id, address, topic_ids=self._topic_ids)

    def _leader(self, place: Place) -> int:
        topic, number = place
        found = self._look.topics.get(topic)
        leader = NOBODY if found is None else found.leaders.get(number, NOBODY)
        if leader == NOBODY:
            raise BrokerUnavailableError(f"{topic} {number} has no leader now")
        return leader

    def _has(self, claim: Claim, broker_id: int) -> bool:
        found = self._look.topics.get(claim.topic)
        return found is not None and found.leaders.get(claim.partition.partition) == broker_id

    # -- offsets --------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit up to where the target has everything."""
        reached = {
            place: claim.covered
            for place, claim in self._claims.items()
            if claim.covered is not None and claim.covered != self._committed.get(place)
        }
        for (topic, _number), code in self._cluster.commit(self._group, reached).items():
            check(code, f"group {self._group!r}, {topic}")
        self._committed |= reached
