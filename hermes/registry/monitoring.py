"""`/metrics` and `/health` of a registry in a process of its own; a broker has its own."""

from functools import partial
from typing import Any

from twisted.web.resource import Resource

from hermes.metrics import OPENMETRICS, FamiliesCollector, content_type, generate
from hermes.registry.metrics import RegistryMetrics
from hermes.registry.topic_store import TopicStore
from hermes.security import CLUSTER, Operation
from hermes.web import Health, Rule, StatePage, WebServer


def add_resources(web: WebServer, store: TopicStore, metrics: RegistryMetrics) -> None:
    ready = StatePage(partial(_readiness, store))
    web.root.add("health", Health(ready), any_host=True, rule=Rule(is_open=True))
    rule = web.guard.rule(Operation.DESCRIBE, CLUSTER)
    web.root.add("metrics", _MetricsPage(metrics), any_host=True, rule=rule)


def _readiness(store: TopicStore) -> dict[str, Any]:
    """Ready is what can answer reads; also shows who leads, and whether the home is reachable."""
    return {"ready": store.log.is_readable, **store.describe()}


class _MetricsPage(Resource):
    isLeaf = True

    def __init__(self, metrics: RegistryMetrics) -> None:
        super().__init__()
        self._metrics = metrics

    def render_GET(self, request: Any) -> bytes:
        format_ = content_type(request.getHeader("accept") or "")
        request.setHeader(b"Content-Type", format_.encode())
        text = generate(FamiliesCollector(self._metrics.series), format_)
        return text + b"# EOF\n" if format_ == OPENMETRICS else text
