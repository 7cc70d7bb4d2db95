"""Owners and offsets of a group in ZooKeeper, fenced against former owners.

Taking a partition is one transaction: the owner's node is created and written once (its version is
1 from then on, where other implementations leave 0), and the offset's node is rewritten with its
value, which bumps its version. A commit is one transaction too: the owner's node must have version
1, the offset's node the version last seen. So the commit of a former owner fails, whoever took the
partition after it; a member of Kafka 0.7, though, commits without any check.
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

_log = logging.getLogger(__name__)

_OWNER_VERSION = 1
# Another client may change a node between our reading and writing it: rarely, and not for long.
_ATTEMPTS = 5


class Ownership:
    """Changes the owners and offsets of a group for one consumer. Threads may share it."""

    def __init__(self, session: Session, paths: GroupPaths) -> None:
        self._session = session
        self._paths = paths
        self._made: set[str] = set()

    def take(self, claim: Claim) -> Node | None:
        """Become a partition's owner.

        Returns:
            None if that succeeded; then the claim has its offset, if one is stored. Otherwise the
            owner's node, and the session calls `on_change` when it is deleted.

        Raises:
            InvalidNodeError: the stored offset is not a number, or a node of the partition can't
                be used; nothing was taken.
            CoordinationUnavailableError: the outcome is unknown; try again.
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
                # Ours, from an attempt whose response was lost: start over.
                self._session.delete_own(owner)
            elif isinstance(failure, NoNodeError):
                self._made.clear()
                self._session.ensure_path(self._paths.owners(claim.topic))
            elif not isinstance(failure, BadVersionError):
                raise InvalidNodeError(f"{owner}: ZooKeeper refuses to register it: {failure!r}")
        raise InvalidNodeError(f"{owner}: it, or the offset, keeps changing")

    def commit(self, claim: Claim, offset: int) -> bool:
        """Store where to resume in a partition.

        Returns:
            False if the partition is no longer ours: nothing was stored.

        Raises:
            CoordinationUnavailableError: it is unknown whether it was stored. Try again.
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
            # Perhaps changed by an earlier attempt whose response was lost: check the owner.
            found, stored = self._session.get(owner), self._session.get(path)
            if found is None or found.owner != claim.session_id or found.version != _OWNER_VERSION:
                break
            claim.offset_version = None if stored is None else stored.version
        _log.warning("%s: offset %d was not committed, another member owns it", claim, offset)
        return False

    def give_back(self, claim: Claim) -> None:
        """Release a partition, if we still own it."""
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
    """The error of a transaction; None if it succeeded."""
    failures = [each for each in results if isinstance(each, Exception)]
    # Operations beside the one that failed say RolledBack (before it) or RuntimeInconsistency.
    causes = [
        each for each in failures if not isinstance(each, RolledBackError | RuntimeInconsistency)
    ]
    return next(iter(causes or failures), None)
