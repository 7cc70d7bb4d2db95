"""What a mirror process serves over HTTP: metrics, health, and its state as JSON."""

import json
from http import HTTPStatus
from typing import Any, Final

from twisted.web.resource import Resource

from hermes.metrics import OPENMETRICS, content_type
from hermes.mirror.families import write_families
from hermes.mirror.telling import Telling
from hermes.web import ErrorPage, WebServer, stream, write_json

#: How many scrapes are answered at once.
_MOST_SCRAPES: Final = 4


def mount_mirror(web: WebServer, reactor: Any, telling: Telling) -> None:
    """Serve a mirror.

    Args:
        web: what is being completed.
        reactor: serves it.
        telling: knows the mirror.
    """
    health = _Health()
    health.putChild(b"live", _Live())
    health.putChild(b"ready", _Ready(telling))
    web.root.add("health", health, any_host=True)
    web.root.add("metrics", _Metrics(telling, reactor), any_host=True)
    web.root.add("status", _Status(telling), any_host=True)


class _Health(Resource):
    _page = ErrorPage(HTTPStatus.NOT_FOUND, "there are /health/live and /health/ready")

    def getChild(self, path: bytes, request: Any) -> Any:
        return self._page

    def render(self, request: Any) -> bytes:
        return self._page.render(request)


class _Live(Resource):
    isLeaf = True

    def render_GET(self, request: Any) -> bytes:
        return write_json(request, {"live": True})


class _Ready(Resource):
    """Ready while nothing is wrong: sources and target are reached, every partition goes on."""

    isLeaf = True

    def __init__(self, telling: Telling) -> None:
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

    def __init__(self, telling: Telling) -> None:
        super().__init__()
        self._telling = telling

    def render_GET(self, request: Any) -> bytes:
        now = self._telling.now()
        names = {"mirror": now.mirror, "process": now.process}
        return write_json(request, {**names, **json.loads(now.format())})


class _Metrics(Resource):
    isLeaf = True

    def __init__(self, telling: Telling, reactor: Any) -> None:
        super().__init__()
        self._telling = telling
        self._reactor = reactor
        self._under_way = 0

    def render_GET(self, request: Any) -> int | bytes:
        if self._under_way >= _MOST_SCRAPES:
            refusal = f"{_MOST_SCRAPES} scrapes are under way: ask again later"
            page: bytes = ErrorPage(HTTPStatus.SERVICE_UNAVAILABLE, refusal).render(request)
            return page
        self._under_way += 1
        request.notifyFinish().addBoth(self._ended)
        format_ = content_type(request.getHeader("accept") or "")
        request.setHeader(b"Content-Type", format_.encode())
        return stream(request, self._reactor, self._pieces(format_))

    def _pieces(self, format_: str) -> Any:
        from prometheus_client import CollectorRegistry, ProcessCollector

        from hermes.metrics import generate

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        yield generate(registry, format_)
        yield from write_families(self._telling, format_)
        if format_ == OPENMETRICS:
            yield b"# EOF\n"

    def _ended(self, _: Any) -> None:
        self._under_way -= 1
