"""Where topics of Kafka's format come from: a compacted topic of the cluster that has them.

    hermes-mirror-origins    key: a topic
                             value: {"origins": {"<cluster's id>": "<mirror's name>"}}

A mirror that writes a topic says so there first, and who reads one looks there, since Kafka has no
coordination for that. It has one partition, which is read from where it was read up to before. Of
two mirrors that write of the same topic at once one is forgotten, until its next look.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from hermes.coordination.cluster_view import OnFault, read_listeners, suitable_listeners
from hermes.coordination.sessions import Session
from hermes.errors import BrokerUnavailableError, InvalidMessageError
from hermes.mirror.kafka_cluster import KafkaCluster, check
from hermes.protocol import EARLIEST, NOBODY
from hermes.protocol.record_set import RecordSet
from hermes.protocol.records import Record, encode_batch
from hermes.security import ClientSecurity

#: Where they are.
ORIGINS_TOPIC: Final = "hermes-mirror-origins"

# How old what is known may be: a mirror asks for one topic after the other.
_KNOWN_SECONDS: Final = 1.0
_FETCH_BYTES: Final = 1 << 20
_TIMEOUT_MS: Final = 10_000


class KafkaOrigins:
    """The origins of a cluster's topics. HermesError while it can't be asked. For one thread."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._known: dict[str, dict[str, str]] = {}
        # Topics of which what is stored can't be understood, and why.
        self._unclear: dict[str, InvalidMessageError] = {}
        self._topic_id: UUID | None = None
        self._next = 0
        self._read_at = -math.inf

    def read(self, topic: str) -> Mapping[str, str]:
        if time.monotonic() > self._read_at + _KNOWN_SECONDS:
            self.all()
            self._read_at = time.monotonic()
        if topic in self._unclear:
            raise self._unclear[topic]
        return self._known.get(topic, {})

    def add(self, topic: str, origins: Mapping[str, str]) -> list[str]:
        """Add clusters to those that a topic has already; returns the ids that are new."""
        known = self.read(topic)
        new = [each for each in origins if each not in known]
        if new:
            self._write(topic, {**known, **{each: origins[each] for each in new}})
        return new

    def remove(self, topic: str, clusters: list[str]) -> None:
        known = self.read(topic)
        self._write(topic, {each: by for each, by in known.items() if each not in clusters})

    def forget(self, topic: str) -> bool:
        """Forget a topic's origins, or what nobody understands; returns whether there was any."""
        if not self.all().get(topic) and topic not in self._unclear:
            return False
        self._write(topic, {})
        return True

    def all(self) -> Mapping[str, Mapping[str, str]]:
        """By topic what is known of those that come from anywhere, and can be understood."""
        leader = self._leader()
        if leader is None:
            return {}
        for record in self._unread(leader):
            topic = (record.key or b"").decode("utf-8", "replace")
            self._unclear.pop(topic, None)
            try:
                self._known[topic] = _parsed(record.value)
            except InvalidMessageError as error:  # of this topic only
                self._unclear[topic] = error
        return {topic: origins for topic, origins in self._known.items() if origins}

    # -- inside ---------------------------------------------------------------------------------

    def _leader(self) -> int | None:
        found = self._cluster.look([ORIGINS_TOPIC]).topics.get(ORIGINS_TOPIC)
        topic_id = None if found is None else found.topic_id
        if found is None or topic_id != self._topic_id:  # it was deleted, and made anew perhaps
            self._topic_id, self._next = topic_id, 0
            self._known, self._unclear = {}, {}
        if found is None:
            return None
        leader = found.leaders.get(0, NOBODY)
        if leader == NOBODY:
            raise BrokerUnavailableError(f"topic {ORIGINS_TOPIC} has no leader now")
        return leader

    def _unread(self, leader: int) -> Iterator[Record]:
        while True:
            partition = {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": self._next,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": _FETCH_BYTES,
            }
            answer = self._cluster.ask(
                leader,
                "Fetch",
                12,
                replica_id=-1,
                max_wait=0,
                min_bytes=0,
                max_bytes=_FETCH_BYTES,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[{"topic": ORIGINS_TOPIC, "partitions": [partition]}],
            )
            (found,) = answer.responses[0].partitions
            if found.error_code and found.error_code.name == "offset_out_of_range":
                # It was made anew, or its first records were deleted.
                self._known, self._unclear = {}, {}
                self._next = self._cluster.offset_at((ORIGINS_TOPIC, 0), leader, EARLIEST)
                continue
            check(found.error_code, ORIGINS_TOPIC)
            fetched = RecordSet(found.records or b"", self._next)
            yield from fetched.records()
            if fetched.next_offset == self._next:
                return
            self._next = fetched.next_offset

    def _write(self, topic: str, origins: Mapping[str, str]) -> None:
        self._read_at = -math.inf
        leader = self._leader()
        if leader is None:
            self._cluster.create_topic(ORIGINS_TOPIC, 1, {"cleanup.policy": "compact"})
            leader = self._leader()
        if leader is None:
            raise BrokerUnavailableError(f"topic {ORIGINS_TOPIC} isn't there yet")
        value = json.dumps({"origins": dict(sorted(origins.items()))}).encode() if origins else None
        record = Record(0, time.time_ns() // 1_000_000, topic.encode(), value)
        entry = {"index": 0, "records": encode_batch([record])}
        answer = self._cluster.ask(
            leader,
            "Produce",
            9,
            acks=-1,
            timeout=_TIMEOUT_MS,
            topic_data=[{"name": ORIGINS_TOPIC, "partition_data": [entry]}],
        )
        (done,) = answer.responses[0].partition_responses
        check(done.error_code, ORIGINS_TOPIC, done.error_message)


def kafka_cluster_of(
    session: Session, security: ClientSecurity, on_fault: OnFault
) -> KafkaCluster | None:
    """A Hermes cluster by its listeners for Kafka's clients; None where none is for this client."""
    brokers = read_listeners(session, on_fault).values()
    places = [
        (each.host, each.port)
        for broker in brokers
        for each in suitable_listeners(broker.kafka, security)
    ]
    return KafkaCluster(places, security) if places else None


def _parsed(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    try:
        origins = json.loads(value)["origins"]
        return {str(each): str(by) for each, by in origins.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidMessageError(f"{ORIGINS_TOPIC} holds {value[:60]!r}, not origins") from error
