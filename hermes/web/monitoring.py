"""Health and metrics of any process that serves."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from twisted.web.resource import Resource

from hermes.metrics import content_type
from hermes.web.responses import ErrorPage, stream, write_json

#: How many scrapes are answered at once: each takes a turn of its own of the reactor, and memory.
MAX_SCRAPES = 4


class Health(Resource):
    """`/health`, with `live`, `ready`, and what there is for everything else."""

    _page = ErrorPage(HTTPStatus.NOT_FOUND, "there are /health/live and /health/ready")

    def __init__(self, ready: Resource) -> None:
        super().__init__()
        # Answered by the reactor, which proves that it runs.
        self.putChild(b"live", StatePage(lambda: {"live": True}))
        self.putChild(b"ready", ready)

    def getChild(self, path: bytes, request: Any) -> Any:
        return self._page

    def render(self, request: Any) -> bytes:
        return self._page.render(request)


class StatePage(Resource):
    """Shows what `state` returns as JSON; if its `ready` is False, with the status for that."""

    isLeaf = True

    def __init__(self, state: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__()
        self._state = state

    def render_GET(self, request: Any) -> bytes:
        shown = self._state()
        is_ready = shown.get("ready", True)
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return write_json(request, shown, status)


class MetricsResource(Resource):
    """`/metrics`, served to a few at a time.

    `scrape`: called with the requested format; what it returns is `stream`ed.
    """

    isLeaf = True

    def __init__(self, reactor: Any, scrape: Callable[[str], Any]) -> None:
        super().__init__()
        self._reactor = reactor
        self._scrape = scrape
        self._under_way = 0

    def render_GET(self, request: Any) -> int | bytes:
        if self._under_way >= MAX_SCRAPES:
            refusal = f"{MAX_SCRAPES} scrapes are under way: ask again later"
            return ErrorPage(HTTPStatus.SERVICE_UNAVAILABLE, refusal).render(request)
        self._under_way += 1
        request.notifyFinish().addBoth(self._ended)
        format_ = content_type(request.getHeader("accept") or "")
        request.setHeader(b"Content-Type", format_.encode())
        return stream(request, self._reactor, self._scrape(format_))

    def _ended(self, _: Any) -> None:
        self._under_way -= 1
