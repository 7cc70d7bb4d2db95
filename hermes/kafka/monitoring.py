"""The metrics of Kafka's requests."""

from collections.abc import Iterator, Mapping
from typing import Final

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

#: All of them, by name.
FAMILIES: Final = {each.name: each for each in (_REQUESTS, _SECONDS)}


def series(kinds: Mapping[str, RequestKind]) -> Iterator[Series]:
    begun = {name: kind for name, kind in kinds.items() if kind.taken}
    yield _REQUESTS, [((name,), kind.taken) for name, kind in begun.items()]
    yield _SECONDS, [((name,), kind.seconds) for name, kind in begun.items()]
