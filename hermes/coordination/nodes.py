"""The tree of nodes, as a session with coordination reads and changes it.

What follows and decides by the tree asks for no more than this: `sessions.Session` gives it over
kazoo, the embedded server to its own process, and a test or a simulation stands on a tree in its
own memory. So there is no kazoo here.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Node(NamedTuple):
    """`version`: counts the value's changes. `owner`: an ephemeral node's session, or 0."""

    value: bytes
    version: int
    owner: int


class NodeTransaction(Protocol):
    """Collects the operations of a transaction, by kazoo's names. A version of -1 means any."""

    def create(self, path: str, value: bytes = b"") -> object:
        """Make a persistent node, whose parent must be there."""

    def set_data(self, path: str, value: bytes, version: int = -1) -> object:
        """Change a node's value."""

    def delete(self, path: str, version: int = -1) -> object:
        """Delete a node, which must have no children."""

    def check(self, path: str, version: int) -> object:
        """Let the transaction fail unless a node has this version."""


class TreeNodes(Protocol):
    """The tree, for those who read and change it.

    Each method may raise CoordinationUnavailableError: no answer came, and nobody knows whether it
    was done; or a node has changed meanwhile. It raises another CoordinationError when it is
    refused.
    """

    def stop(self) -> None:
        """Use it no more. Idempotent."""

    def get(self, path: str) -> Node | None:
        """Read a node; None when it isn't there."""

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes at once; None for one that isn't there."""

    def children(self, path: str) -> list[str]:
        """List a node's children, sorted; none when it isn't there."""

    def set(self, path: str, value: bytes, version: int = -1) -> int:
        """Change a node's value, if it has the version; -1 for any. Returns the new version."""

    def ensure_path(self, path: str) -> None:
        """Make a persistent, empty node and its parents, unless they are there."""

    def sync(self, path: str) -> None:
        """Wait until this server shows all that any server had taken when this was called."""

    def transact(self, fill: Callable[[NodeTransaction], object]) -> list[Any]:
        """Carry out the operations that `fill` adds: all, or none.

        Returns what each operation gave. When one failed none was done, and each gave an exception.
        """


class TreeSession(TreeNodes, Protocol):
    """A session with coordination, for those who follow the tree, too.

    Whoever makes one gives it a callback, for everything that may have changed: what was read with
    `watch`, once, and whether coordination can be reached. It must not call back. A watch may be
    lost when that changes, so whoever is woken reads everything again.
    """

    @property
    def session_id(self) -> int | None:
        """The current session; another one after that has ended, None where nobody knows."""

    def start(self) -> None:
        """Connect."""

    def stop(self) -> None:
        """End the session, and with it its ephemeral nodes. Idempotent."""

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        """Read a node; None when it isn't there. A watch then waits for it to appear."""

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        """List a node's children, sorted; none when it isn't there: a watch waits for it."""

    def create(self, path: str, value: bytes) -> bool:
        """Make a persistent node with a value, and its parents; returns False if it is there."""

    def create_ephemeral(self, path: str, value: bytes) -> Node | None:
        """Register a value for as long as the session lives. Parents are made, persistent.

        Returns None when the node is this session's, be it from an earlier attempt; otherwise the
        node of the other session that is in the way.
        """

    def delete(self, path: str, version: int) -> bool:
        """Delete a node of a version; returns False when it is gone or has changed."""
