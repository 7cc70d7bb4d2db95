"""The metrics of Kafka's requests."""

from collections.abc import Iterator, Mapping
from typing import Final

from hermes.kafka.fetch_sessions import FetchSessions
from hermes.metrics import Family, Series
from hermes.server.metrics import RequestKind

_REQUESTS: Final = Family(
    "hermes_kafka_requests_total",
    "counter",
    "Requests of Kafka clients.",
    ("request",),
)
_SECONDS: Final = Family(
    "hermes_kafka_request_seconds",
    "histogram",
    "From such a request being taken to its response being known; some wait as long as they ask "
    "for.",
    ("request",),
)
_SESSIONS: Final = Family(
    "hermes_kafka_fetch_sessions", "gauge", "Fetch sessions of consumers.", ()
)
_SESSION_PARTITIONS: Final = Family(
    "hermes_kafka_fetch_session_partitions", "gauge", "The partitions of all of them together.", ()
)
_SESSION_BYTES: Final = Family(
    "hermes_kafka_fetch_session_bytes",
    "gauge",
    "About what they take in memory, of `fetch_session_memory`.",
    (),
)
_EVICTED: Final = Family(
    "hermes_kafka_fetch_sessions_evicted_total",
    "counter",
    "Fetch sessions that were given up to make room for others.",
    (),
)

#: All of them, by name.
FAMILIES: Final = {
    each.name: each
    for each in (_REQUESTS, _SECONDS, _SESSIONS, _SESSION_PARTITIONS, _SESSION_BYTES, _EVICTED)
}


def series(kinds: Mapping[str, RequestKind], sessions: FetchSessions) -> Iterator[Series]:
    begun = {name: kind for name, kind in kinds.items() if kind.taken}
    yield _REQUESTS, [((name,), kind.taken) for name, kind in begun.items()]
    yield _SECONDS, [((name,), kind.seconds) for name, kind in begun.items()]
    yield _SESSIONS, [((), len(sessions))]
    yield _SESSION_PARTITIONS, [((), sessions.partitions)]
    yield _SESSION_BYTES, [((), sessions.used_bytes)]
    yield _EVICTED, [((), sessions.evicted)]
