"""What a mirror process serves over HTTP: metrics, health, and its state as JSON."""

import json
from functools import partial
from http import HTTPStatus
from typing import Any

from twisted.web.resource import Resource

from hermes.metrics import OPENMETRICS
from hermes.mirror.families import write_families
from hermes.mirror.telling import StatusPublisher
from hermes.security import CLUSTER, Operation
from hermes.web import Health, MetricsResource, Rule, WebServer, write_json


def mount_mirror(web: WebServer, reactor: Any, telling: StatusPublisher) -> None:
    """Serve a mirror.

    Args:
        web: what is being completed.
        reactor: serves it.
        telling: knows the mirror.
    """
    rule = web.guard.rule(Operation.DESCRIBE, CLUSTER)
    metrics = MetricsResource(reactor, partial(_pieces, telling))
    web.root.add(
        "health", Health(_MirrorReadiness(telling)), any_host=True, rule=Rule(is_open=True)
    )
    web.root.add("metrics", metrics, any_host=True, rule=rule)
    web.root.add("status", _Status(telling), any_host=True, rule=rule)


class _MirrorReadiness(Resource):
    """Ready while nothing is wrong: sources and target are reached, every partition goes on."""

    isLeaf = True

    def __init__(self, telling: StatusPublisher) -> None:
        super().__init__()
        self._telling = telling

    def render_GET(self, request: Any) -> bytes:
        now = self._telling.now()
        ready = not now.errors
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return write_json(request, {"ready": ready, "errors": dict(now.errors)}, status)


class _Status(Resource):
    """The node that it has in coordination, with its name."""

    isLeaf = True

    def __init__(self, telling: StatusPublisher) -> None:
        super().__init__()
        self._telling = telling

    def render_GET(self, request: Any) -> bytes:
        now = self._telling.now()
        names = {"mirror": now.mirror, "process": now.process}
        return write_json(request, {**names, **json.loads(now.format())})


def _pieces(telling: StatusPublisher, format_: str) -> Any:
    from prometheus_client import CollectorRegistry, ProcessCollector

    from hermes.metrics import generate

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    yield generate(registry, format_)
    yield from write_families(telling, format_)
    if format_ == OPENMETRICS:
        yield b"# EOF\n"
