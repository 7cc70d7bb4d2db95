"""Clients in a forked process: they refuse to work, and leave the parent's alone.

A child shares its parent's sockets: if both write to one, each gets responses to the other's
requests. It has none of its threads: queues aren't processed, and locks that the threads held are
never released. So a client can't be used in a child; what can be done safely is to raise an error
at once, and not to hang at the child's exit.

Costs nothing until a process forks: the process id is never checked.
"""

import os
import weakref
from typing import Final, Protocol

__all__ = ["FORKED", "Forkable", "watch_forks"]

#: What an error says; the name of the object comes before it.
FORKED: Final = (
    "belongs to the process that this one was forked from, and can't be used here: create another "
    "one after forking"
)


class Forkable(Protocol):
    """Notified in a forked process."""

    def forked(self) -> None:
        """Called once in the child, before anything else runs there.

        No thread that holds a lock exists here: replace all locks. Sockets may be dropped, but
        neither shut down nor written to.
        """


_watched: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def watch_forks(client: Forkable) -> None:
    """Notify a client in a forked process, as long as it exists."""
    _watched.add(client)


def _notify() -> None:
    clients = list(_watched)
    _watched.clear()
    for client in clients:
        client.forked()


os.register_at_fork(after_in_child=_notify)
