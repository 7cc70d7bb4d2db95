"""Whether a broker lives, and whether it is ready to serve, with each reason in JSON.

Live means that the reactor turns. Ready means that messages can be produced and fetched here:
every partition, with room for more, by clients that find the broker. Anybody may ask, so that a
broker with access rules names no topics.
"""

import os
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.web.resource import Resource

from hermes.broker.serving import ServingBroker
from hermes.web import Health, respond_later, write_json

#: By which a client asks whether copies are in sync, too.
_IN_SYNC = b"in_sync"

#: How many offline partitions are named.
_MOST_NAMED = 10


class Check(NamedTuple):
    """One condition of being ready; `detail` is what was found, for people."""

    name: str
    is_ok: bool
    detail: str


def readiness(run: ServingBroker, available_bytes: int | None = None) -> Iterator[Check]:
    """Check everything that being ready needs.

    `available_bytes` is the room on the data directory's file system; -1: it can't be found out,
    None: leave the disk out.
    """
    ports = len(run.addresses)
    stopping = "; the broker is stopping" if run.stopping else ""
    yield Check("ports", bool(ports) and not run.stopping, f"{ports} open{stopping}")
    recovered = len(run.opened.recovered)
    yield Check("recovery", True, f"done in {run.opening_seconds:.3f} s, {recovered} recovered")
    if run.coordination.is_enabled:
        registered = run.coordination.is_registered
        yield Check("coordination", registered, "registered" if registered else "not registered")
    logs = run.directory.logs.values()
    offline = [f"{log.name}: {log.offline_reason}" for log in logs if log.is_offline]
    yield Check("partitions", not offline, _named(run, offline) if offline else "none is offline")
    if available_bytes is not None:
        wanted = run.config.ready_min_free_bytes
        is_known = available_bytes >= 0
        found = f"{available_bytes} bytes free" if is_known else "the directory can't be checked"
        yield Check("disk", available_bytes >= wanted, f"{found}, ready_min_free is {wanted}")


def copies_in_sync(run: ServingBroker) -> Check:
    """Whether all copies that this broker has are in sync, but those that it is being given."""
    topics, own, behind, count = run.cluster.topics, run.config.broker_id, list[str](), 0
    for name in topics.names():
        found = topics.get(name)
        for number, state in enumerate(() if found is None else found.copies):
            if state is not None and own in state.target and own not in state.adding:
                count += 1
                if own not in state.isr:
                    behind.append(f"{name}-{number}")
    if not topics.is_known:
        return Check("in_sync", False, "it isn't known yet which topics there are")
    detail = f"not in sync: {_named(run, behind)}" if behind else f"all of {count} copies"
    return Check("in_sync", not behind, detail)


def _named(run: ServingBroker, partitions: Sequence[str]) -> str:
    if run.config.is_guarded:
        return f"{len(partitions)}, which the log and the metrics name"
    more = [f"and {len(partitions) - _MOST_NAMED} more"] if len(partitions) > _MOST_NAMED else []
    return "; ".join([*partitions[:_MOST_NAMED], *more])


def health_resource(run: ServingBroker) -> Health:
    return Health(_Ready(run))


class _Ready(Resource):
    isLeaf = True

    def __init__(self, run: ServingBroker) -> None:
        super().__init__()
        self._run = run

    def render_GET(self, request: Any) -> int:
        # A disk that hangs must not hang the reactor.
        free: Deferred[int] = self._run.in_thread(free_bytes, self._run.directory.path)
        return respond_later(request, free.addCallback(self._answer, request))

    def _answer(self, free: int, request: Any) -> bytes:
        checks = list(readiness(self._run, free))
        if request.args.get(_IN_SYNC, [b"0"])[-1] != b"0":
            checks.append(copies_in_sync(self._run))
        ready = all(check.is_ok for check in checks)
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        shown = {check.name: {"ok": check.is_ok, "detail": check.detail} for check in checks}
        return write_json(request, {"ready": ready, "checks": shown}, status)


def free_bytes(directory: str) -> int:
    """A file system's room for this process; -1 when that can't be found out. Blocks."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return -1
    return found.f_bavail * found.f_frsize
