"""The reactors of commands that serve something: only the composition root has the global one."""

from typing import Any


def make_reactor() -> Any:
    """A reactor of the command's own."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    return EPollReactor()  # type: ignore[no-untyped-call]
