"""Changes of topics' nodes: each is noted, so that whoever watches one node learns of all of them.

Every change rewrites `changes` in the same transaction, whose version counts them, and as a rule
`recent_changes` (recent_changes.py). All writes depend on the version that was read: of two at once
one is first, and the other looks again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from hermes.coordination.kafka_topics import KAFKA_CHANGES, RECENT_CHANGES
from hermes.coordination.nodes import Node, NodeTransaction, TreeNodes
from hermes.coordination.recent_changes import (
    RecentChanges,
    changes_up_to,
    format_changes,
    parse_changes,
)
from hermes.errors import CoordinationUnavailableError

#: How often a change is tried that others get in the way of.
_TRIES: Final = 100

#: After how many of these a change isn't listed any more, but only told as the last one. The list
#: makes changes of different topics wait for each other.
_LISTED_TRIES: Final = 20

#: The name of an operation of kazoo's transactions, and its arguments.
Operation = tuple[Any, ...]


class NotedChanges:
    """Blocks; any thread."""

    def __init__(self, session: TreeNodes) -> None:
        self._session = session

    def carry_out(
        self,
        path: str,
        decide: Callable[[Node | None], Sequence[Operation]],
        topic: str | None = None,
    ) -> None:
        """Do what `decide` says of a path's node, unless that has changed meanwhile.

        `topic`: the one that it changes; None for none. Raises CoordinationUnavailableError: nobody
        knows whether it was done.
        """
        topics = [] if topic is None else [topic]
        self.carry_out_together([path], lambda found: (decide(found[0]), topics))

    def carry_out_together(
        self,
        paths: Sequence[str],
        decide: Callable[[Sequence[Node | None]], tuple[Sequence[Operation], Sequence[str]]],
    ) -> None:
        """Do in one step what `decide` says of some paths' nodes; it names the changed topics, too.

        Raises as `carry_out`.
        """
        # The nodes last: one may be deleted and made anew, with the same version, but not unless
        # `changes` gets another one.
        results: list[Any] = []
        for attempt in range(_TRIES):
            last, noted, *found = self._session.get_all([KAFKA_CHANGES, RECENT_CHANGES, *paths])
            decided, topics = decide(found)
            if not decided:
                return
            is_listed = attempt < _LISTED_TRIES
            operations = [*decided, *_noting(topics, last, noted, is_listed=is_listed)]
            results = self._session.transact(partial(_fill, operations))
            if not any(isinstance(each, Exception) for each in results):
                return
        raise CoordinationUnavailableError(f"{paths[0]}: it can't be changed: {results!r:.200}")


def _noting(
    names: Sequence[str], last: Node | None, noted: Node | None, *, is_listed: bool
) -> Iterator[Operation]:
    """Note changes: what is listed must be of the versions that `changes` has in between."""
    if last is None or not is_listed:
        for name in names:
            yield "set_data", KAFKA_CHANGES, name.encode()
        return
    if names:
        changes = changes_of(last, noted)
        for name in names:
            yield "set_data", KAFKA_CHANGES, name.encode(), changes.version
            changes = changes.followed_by(name)
        yield (
            ("create" if noted is None else "set_data"),
            RECENT_CHANGES,
            format_changes(changes, len(names)),
        )


def changes_of(last: Node, noted: Node | None) -> RecentChanges:
    name = last.value.decode(errors="replace")
    listed = None if noted is None else parse_changes(noted.value)
    return changes_up_to(last.version, name, listed)


def _fill(operations: Sequence[Operation], transaction: NodeTransaction) -> None:
    for name, *arguments in operations:
        getattr(transaction, name)(*arguments)
