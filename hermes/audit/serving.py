"""What a process that counts serves over HTTP: the metrics of the last comparison."""

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from twisted.web.resource import Resource

from hermes.audit.audit_metrics import write_families
from hermes.audit.checking import Audit
from hermes.audit.comparing import Report
from hermes.metrics import OPENMETRICS, content_type
from hermes.security import CLUSTER, Operation
from hermes.web import ErrorPage, WebServer, stream


class LastReport:
    """Threads may share it. `make`: makes what reads and compares; only `look`'s thread uses it.

    `afresh_seconds`: after so long another one is made, which has forgotten what is too old.
    """

    def __init__(self, make: Callable[[], Audit], afresh_seconds: float) -> None:
        self._make = make
        self._afresh_seconds = afresh_seconds
        self._audit = make()
        self._made_at = time.monotonic()
        self._lock = threading.Lock()
        self._found: tuple[Report, int] | None = None

    def look(self) -> None:
        """Compare now. Raises HermesError as `Audit.look`; the last report stays."""
        if time.monotonic() - self._made_at > self._afresh_seconds:
            self._audit.close()
            self._audit = self._make()
            self._made_at = time.monotonic()
        report = self._audit.look()
        with self._lock:
            self._found = report, len(self._audit.unavailable)

    def close(self) -> None:
        self._audit.close()

    def found(self) -> tuple[Report, int] | None:
        """The report, and how much could not be read; None before there is one."""
        with self._lock:
            return self._found


def mount_audit(web: WebServer, reactor: Any, last: LastReport) -> None:
    web.root.add(
        "metrics",
        _AuditMetrics(last, reactor),
        any_host=True,
        rule=web.guard.rule(Operation.DESCRIBE, CLUSTER),
    )


class _AuditMetrics(Resource):
    isLeaf = True

    def __init__(self, last: LastReport, reactor: Any) -> None:
        super().__init__()
        self._last = last
        self._reactor = reactor

    def render_GET(self, request: Any) -> int | bytes:
        found = self._last.found()
        if found is None:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            page: bytes = ErrorPage(status, "there is no comparison yet").render(request)
            return page
        format_ = content_type(request.getHeader("accept") or "")
        request.setHeader(b"Content-Type", format_.encode())
        return stream(request, self._reactor, self._pieces(found, format_))

    def _pieces(self, found: tuple[Report, int], format_: str) -> Any:
        yield from write_families(*found, format_)
        if format_ == OPENMETRICS:
            yield b"# EOF\n"
