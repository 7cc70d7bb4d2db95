"""What becomes of clients in a forked process: they refuse, and leave what their parent uses alone.

A child shares its parent's sockets: with both writing to one, each gets answers to the other's
requests. It has none of its threads: queues don't move, and locks that they held are never
released. So nothing of a client can go on in a child; what can be done safely is to say so at once,
and not to hang at its exit.

Costs nothing until a process forks: nobody asks for the process's id.
"""

import os
import weakref
from typing import Final, Protocol

__all__ = ["FORKED", "Forkable", "watch_forks"]

#: How an error names the fault; the name of what refuses comes before it.
FORKED: Final = (
    "belongs to the process that this one was forked from, and can't be used here: make another "
    "one after forking"
)


class Forkable(Protocol):
    """What must know that it is in a forked process."""

    def forked(self) -> None:
        """Take note of being in a child, before anything else runs there. Called once.

        Nobody holds locks rightfully: make them new. Sockets may be let go of, never shut down,
        and nothing may be written to them.
        """


_watched: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def watch_forks(client: Forkable) -> None:
    """Tell a client, for as long as it lives, when it finds itself in a forked process."""
    _watched.add(client)


def _tell() -> None:
    clients = list(_watched)
    _watched.clear()
    for client in clients:
        client.forked()


os.register_at_fork(after_in_child=_tell)
