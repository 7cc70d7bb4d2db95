"""Who owns the nodes that an authenticated session makes.

Without users there are no owners: every node is open, as Kafka 0.7's are. With one, whoever makes a
node owns it, and others may read it, but not the node with the brokers' users. Below some nodes
everybody may make nodes of their own.
"""

from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, make_acl

from hermes.coordination.kafka_topics import KAFKA_USERS
from hermes.coordination.layout import CONSUMERS, MIRRORS, ORIGINS

#: Whoever makes it may do all with it, others may read it.
OWNED: Final[tuple[ACL, ...]] = (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)

# Others may make nodes below it.
_OPEN_TO_NEW: Final[tuple[ACL, ...]] = (
    *CREATOR_ALL_ACL,
    make_acl("world", "anyone", read=True, create=True),
)

# Also delete what is empty, since ZooKeeper has no word for deleting one's own.
_OPEN_TO_OWNERS: Final[tuple[ACL, ...]] = (
    *CREATOR_ALL_ACL,
    make_acl("world", "anyone", read=True, create=True, delete=True),
)

#: The nodes of groups, mirrors and topics' origins, which aren't the brokers'.
SHARED: Final = {CONSUMERS: _OPEN_TO_OWNERS, MIRRORS: _OPEN_TO_OWNERS, ORIGINS: _OPEN_TO_NEW}


_PRIVATE: Final = {KAFKA_USERS: tuple(CREATOR_ALL_ACL)}


def acl_of(path: str) -> tuple[ACL, ...]:
    return SHARED.get(path) or _PRIVATE.get(path, OWNED)


class OwningClient(KazooClient):  # type: ignore[misc]
    """A kazoo client that owns what it makes; it must have authenticated."""

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, **options: Any) -> Any:
        """As kazoo's; `makepath` would give the parents this node's ACL, so it isn't used."""
        return super().create_async(path, value, acl or acl_of(path), **options)

    def transaction(self) -> "OwningTransaction":
        return OwningTransaction(self)


class OwningTransaction(TransactionRequest):  # type: ignore[misc]
    def create(
        self, path: str, value: bytes = b"", acl: Any = None, *flags: bool, **options: bool
    ) -> None:
        super().create(path, value, acl or acl_of(path), *flags, **options)
