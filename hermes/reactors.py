"""Reactors of a caller's own: only the composition root imports Twisted's global one."""

from contextlib import suppress
from typing import Any


def make_reactor() -> Any:
    """A new reactor; `release_reactor` it when it has ended."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    return EPollReactor()  # type: ignore[no-untyped-call]


def release_reactor(reactor: Any) -> None:
    """Close what a reactor holds. Twisted doesn't, as its global reactor lives until the exit."""
    waker = reactor.waker
    with suppress(Exception):
        reactor._internalReaders.discard(waker)
        reactor.removeReader(waker)
    waker.connectionLost(None)
    poller = getattr(reactor, "_poller", None)
    if poller is not None:
        poller.close()
