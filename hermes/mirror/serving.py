"""What a mirror process serves over HTTP: metrics, health, and its state as JSON."""

import json
from functools import partial
from typing import Any

from hermes.metrics import OPENMETRICS
from hermes.mirror.mirror_metrics import write_families
from hermes.mirror.status import StatusPublisher
from hermes.security import CLUSTER, Operation
from hermes.web import Health, MetricsResource, Rule, StatePage, WebServer


def mount_mirror(web: WebServer, reactor: Any, status: StatusPublisher) -> None:
    rule = web.guard.rule(Operation.DESCRIBE, CLUSTER)
    metrics = MetricsResource(reactor, partial(_pieces, status))
    ready = StatePage(partial(_readiness, status))
    web.root.add("health", Health(ready), any_host=True, rule=Rule(is_open=True))
    web.root.add("metrics", metrics, any_host=True, rule=rule)
    web.root.add("status", StatePage(partial(_status, status)), any_host=True, rule=rule)


def _readiness(status: StatusPublisher) -> dict[str, Any]:
    """Ready while nothing is wrong: sources and target are reached, every partition goes on."""
    errors = dict(status.now().errors)
    return {"ready": not errors, "errors": errors}


def _status(status: StatusPublisher) -> dict[str, Any]:
    now = status.now()
    return {"mirror": now.mirror, "process": now.process, **json.loads(now.format())}


def _pieces(status: StatusPublisher, format_: str) -> Any:
    from prometheus_client import CollectorRegistry, ProcessCollector

    from hermes.metrics import generate

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    yield generate(registry, format_)
    yield from write_families(status, format_)
    if format_ == OPENMETRICS:
        yield b"# EOF\n"
