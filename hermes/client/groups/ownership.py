"""Owners and offsets of a group in ZooKeeper, such that a former owner can't do harm.

Taking a partition is one transaction: the owner's node is made and written once (its version is 1
from then on, where other implementations leave 0), and the offset's node is written with what it
holds, which moves its version. A commit is one transaction too: the owner's node must have version
1, the offset's the version last seen. So the commit of a former owner fails, whoever came after
it; one of Kafka 0.7, though, commits without asking.
"""

import logging
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from hermes.client.groups.claims import Claim
from hermes.coordination.layout import BrokerPartition, GroupPaths, format_number, parse_number
from hermes.coordination.sessions import Node, Session
from hermes.errors import CoordinationUnavailableError, InvalidNodeError

__all__ = ["Ownership"]

_log = logging.getLogger(__name__)

_OWNER_VERSION = 1
# Somebody may change a node between reading and writing it; hardly ever, and not for ever.
_ATTEMPTS = 5


class Ownership:
    """What one consumer does to the owners and offsets of its group. Threads may share it.

    Args:
        session: the consumer's.
        paths: the group's.
    """

    def __init__(self, session: Session, paths: GroupPaths) -> None:
        self._session = session
        self._paths = paths
        self._made: set[str] = set()

    def take(self, claim: Claim) -> Node | None:
        """Become a partition's owner.

        Returns:
            None when that succeeded; then the claim knows its offset, if there is one. Otherwise
            the node of who owns it, and the session's `on_change` tells when it is gone.

        Raises:
            InvalidNodeError: the offset that is stored is no number, or a node of the partition
                can't be used; nothing was taken.
            CoordinationUnavailableError: nobody knows; look again.
        """
        owner, offset = self._places(claim)
        for parent in (self._paths.owners(claim.topic), self._paths.offsets(claim.topic)):
            if parent not in self._made:
                self._session.ensure_path(parent)
                self._made.add(parent)
        value = claim.stream_id.encode()
        for _ in range(_ATTEMPTS):
            stored = self._session.get(offset)
            start = None if stored is None else parse_number(offset, stored.value)

            def fill(transaction: Any, stored: Any = stored) -> None:
                transaction.create(owner, value, ephemeral=True)
                transaction.set_data(owner, value)
                if stored is not None:
                    transaction.set_data(offset, stored.value, stored.version)

            failure = _failure(self._session.transact(fill))
            if failure is None:
                claim.committed = start
                claim.offset_version = None if stored is None else stored.version + 1
                return None
            if isinstance(failure, NodeExistsError):
                found = self._session.get(owner, watch=True)
                if found is not None and found.owner != self._session.session_id:
                    return found
                # Ours, from an attempt whose answer was lost: once more, from the beginning.
                self._session.delete_own(owner)
            elif isinstance(failure, NoNodeError):
                self._made.clear()
                self._session.ensure_path(self._paths.owners(claim.topic))
            elif not isinstance(failure, BadVersionError):
                raise InvalidNodeError(f"{owner}: ZooKeeper refuses to register it: {failure!r}")
        raise InvalidNodeError(f"{owner}: it, or the offset, changes all the time")

    def commit(self, claim: Claim, offset: int) -> bool:
        """Store where to go on in a partition.

        Returns:
            False when the partition is not ours any more: nothing was stored.

        Raises:
            CoordinationUnavailableError: nobody knows whether it was stored. Do it again.
        """
        owner, path = self._places(claim)
        if self._session.session_id != claim.session_id:
            if self._session.session_id is None:
                raise CoordinationUnavailableError("there is no connection to ZooKeeper")
            return False
        value = format_number(offset)
        for _ in range(_ATTEMPTS):
            version = claim.offset_version

            def fill(transaction: Any, version: int | None = version) -> None:
                transaction.check(owner, _OWNER_VERSION)
                if version is None:
                    transaction.create(path, value)
                else:
                    transaction.set_data(path, value, version)

            results = self._session.transact(fill)
            if _failure(results) is None:
                claim.offset_version = 0 if version is None else results[1].version
                claim.committed = offset
                return True
            # Perhaps by an attempt of before whose answer was lost: look whose it is.
            found, stored = self._session.get(owner), self._session.get(path)
            if found is None or found.owner != claim.session_id or found.version != _OWNER_VERSION:
                break
            claim.offset_version = None if stored is None else stored.version
        _log.warning("%s: offset %d was not committed, another owns it", claim, offset)
        return False

    def give_back(self, claim: Claim) -> None:
        """Stop being a partition's owner, if we still are."""
        owner, _ = self._places(claim)
        found = self._session.get(owner)
        if found is not None and found.owner == claim.session_id == self._session.session_id:
            self._session.delete(owner, found.version)

    def _places(self, claim: Claim) -> tuple[str, str]:
        partition: BrokerPartition = claim.partition
        return (
            self._paths.owner(claim.topic, partition),
            self._paths.offset(claim.topic, partition),
        )


def _failure(results: list[Any]) -> Exception | None:
    """What a transaction failed with; None if it was done."""
    failures = [each for each in results if isinstance(each, Exception)]
    # Operations beside the one that failed say RolledBack (before it) or RuntimeInconsistency.
    causes = [
        each for each in failures if not isinstance(each, RolledBackError | RuntimeInconsistency)
    ]
    return next(iter(causes or failures), None)
