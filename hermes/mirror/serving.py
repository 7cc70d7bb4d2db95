"""What a mirror process serves over HTTP: metrics, health, and its state as JSON."""

import json
from functools import partial
from http import HTTPStatus
from typing import Any

from twisted.web.resource import Resource

from hermes.metrics import OPENMETRICS
from hermes.mirror.mirror_metrics import write_families
from hermes.mirror.status import StatusPublisher
from hermes.security import CLUSTER, Operation
from hermes.web import Health, MetricsResource, Rule, WebServer, write_json


def mount_mirror(web: WebServer, reactor: Any, status: StatusPublisher) -> None:
    rule = web.guard.rule(Operation.DESCRIBE, CLUSTER)
    metrics = MetricsResource(reactor, partial(_pieces, status))
    web.root.add("health", Health(_MirrorReadiness(status)), any_host=True, rule=Rule(is_open=True))
    web.root.add("metrics", metrics, any_host=True, rule=rule)
    web.root.add("status", _Status(status), any_host=True, rule=rule)


class _MirrorReadiness(Resource):
    """Ready while nothing is wrong: sources and target are reached, every partition goes on."""

    isLeaf = True

    def __init__(self, status: StatusPublisher) -> None:
        super().__init__()
        self._status = status

    def render_GET(self, request: Any) -> bytes:
        now = self._status.now()
        ready = not now.errors
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return write_json(request, {"ready": ready, "errors": dict(now.errors)}, status)


class _Status(Resource):
    isLeaf = True

    def __init__(self, status: StatusPublisher) -> None:
        super().__init__()
        self._status = status

    def render_GET(self, request: Any) -> bytes:
        now = self._status.now()
        names = {"mirror": now.mirror, "process": now.process}
        return write_json(request, {**names, **json.loads(now.format())})


def _pieces(status: StatusPublisher, format_: str) -> Any:
    from prometheus_client import CollectorRegistry, ProcessCollector

    from hermes.metrics import generate

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    yield generate(registry, format_)
    yield from write_families(status, format_)
    if format_ == OPENMETRICS:
        yield b"# EOF\n"
