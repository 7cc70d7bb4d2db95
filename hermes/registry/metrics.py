"""A registry's metrics: their names, and where the numbers come from; docs/monitoring.md has them.

Counters are attributes of whoever counts. Calls are counted in the reactor's thread.
"""

from collections.abc import Iterator
from typing import Final

from hermes.metrics import Family, Histogram, Series
from hermes.registry.topic_store import TopicStore

_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)

_REQUESTS: Final = Family(
    "hermes_registry_requests_total",
    "counter",
    "Calls of the schema registry that were answered.",
    ("call", "status"),
)
_SECONDS: Final = Family(
    "hermes_registry_request_seconds",
    "histogram",
    "From a call's arrival to its answer, forwarded or not.",
    ("call",),
)
_PLAIN: Final = {
    name: Family(f"hermes_registry_{name}", kind, text)
    for name, kind, text in (
        ("leader", "gauge", "1 if this registry leads: it gives out ids."),
        ("ready", "gauge", "1 if its topic can be read; what was read before is served anyway."),
        ("schemas", "gauge", "Schemas with an id."),
        ("subjects", "gauge", "Subjects that have a version."),
        ("events", "gauge", "Events of the topic that count."),
        ("void_messages_total", "counter", "Messages of the topic that don't, since the start."),
        ("appends_total", "counter", "Times that it has written to the topic."),
        ("appended_events_total", "counter", "Events that it has written."),
        ("conflicts_total", "counter", "Times that another registry had written just before."),
        ("forwarded_total", "counter", "Calls that were sent to the leader."),
        ("forward_failures_total", "counter", "Of these, those without an answer."),
    )
}

#: All of them, by name.
FAMILIES: Final = {each.name: each for each in (_REQUESTS, _SECONDS, *_PLAIN.values())}


class RegistryMetrics:
    """Counts calls, and reads a store's numbers. Lives in the reactor's thread."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store
        self._answered: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, Histogram] = {}

    def answered(self, call: str, status: int, seconds: float) -> None:
        key = call, str(status)
        self._answered[key] = self._answered.get(key, 0) + 1
        if call not in self._seconds:
            self._seconds[call] = Histogram(_BOUNDS)
        self._seconds[call].observe(seconds)

    def series(self) -> Iterator[Series]:
        yield _REQUESTS, sorted(self._answered.items())
        yield _SECONDS, [((call,), seconds) for call, seconds in sorted(self._seconds.items())]
        for name, value in self._plain_values().items():
            yield _PLAIN[name], [((), value)]

    def _plain_values(self) -> dict[str, float]:
        log, election = self._store.log, self._store.election
        with log.replica.reading() as state:
            schemas, subjects = state.schema_count, state.subject_count
        return {
            "leader": int(election.is_leading),
            "ready": int(not log.problem),
            "schemas": schemas,
            "subjects": subjects,
            "events": log.replica.mark.events,
            "void_messages_total": log.replica.void,
            "appends_total": log.appends,
            "appended_events_total": log.appended,
            "conflicts_total": log.conflicts,
            "forwarded_total": self._store.forwarder.calls,
            "forward_failures_total": self._store.forwarder.failures,
        }
