"""What a client may ask, as values; decoding.py tells how they come.

Served is what kazoo 2.11 and the Java clients of Kafka 0.7 send. Source: ZooKeeper's
`zookeeper.jute` and `ZooDefs.OpCode`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from hermes.coordination.embedded.records import Acl

__all__ = [
    "AuthRequest",
    "CheckRequest",
    "CloseRequest",
    "ConnectRequest",
    "CreateRequest",
    "DeleteRequest",
    "ExistsRequest",
    "GetAclRequest",
    "GetChildrenRequest",
    "GetDataRequest",
    "MultiRequest",
    "OpCode",
    "Operation",
    "PingRequest",
    "Request",
    "SetAclRequest",
    "SetDataRequest",
    "SetWatchesRequest",
    "SyncRequest",
]


class OpCode(IntEnum):
    """The types of requests that are served; -1 stands for an error in a transaction's results."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    CLOSE = -11


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """A client asks for a session, or to go on with one.

    Attributes:
        last_zxid: the newest transaction that the client has seen.
        timeout_ms: the session timeout that it would like.
        session_id: 0 for a new session.
        password: of the session it had.
        read_only: whether a read-only server would do; None when the client is too old to say,
            and does not understand an answer that says so either.
    """

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Create a node; `flags` 1 makes it ephemeral, 2 sequential; `with_stat` is create2."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int
    with_stat: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """Delete a node, whose version must match unless it is -1."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Check a node's version, within a transaction."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class SetDataRequest:
    """Set a node's data; its version must match unless it is -1."""

    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class SetAclRequest:
    """Set a node's ACL; its ACL's version must match unless it is -1."""

    path: str
    acl: tuple[Acl, ...]
    version: int


@dataclass(frozen=True, slots=True)
class ExistsRequest:
    """Ask for a node's stat; the watch is set whether or not there is a node."""

    path: str
    watch: bool


@dataclass(frozen=True, slots=True)
class GetDataRequest:
    """Ask for a node's data and stat."""

    path: str
    watch: bool


@dataclass(frozen=True, slots=True)
class GetChildrenRequest:
    """Ask for the names of a node's children; `with_stat` is getChildren2."""

    path: str
    watch: bool
    with_stat: bool


@dataclass(frozen=True, slots=True)
class GetAclRequest:
    """Ask for a node's ACL and stat."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Wait for everything before; the path is only given back."""

    path: str


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """Say who one is, for the rest of the connection."""

    scheme: str
    credential: bytes


@dataclass(frozen=True, slots=True)
class SetWatchesRequest:
    """Set the watches of a former connection again; what was missed since `zxid` fires at once."""

    zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PingRequest:
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """End the session."""


#: What a transaction may hold.
Operation: TypeAlias = CreateRequest | DeleteRequest | SetDataRequest | CheckRequest


@dataclass(frozen=True, slots=True)
class MultiRequest:
    """Carry out all operations or none."""

    operations: tuple[Operation, ...]


Request: TypeAlias = (
    Operation
    | MultiRequest
    | SetAclRequest
    | ExistsRequest
    | GetDataRequest
    | GetChildrenRequest
    | GetAclRequest
    | SyncRequest
    | AuthRequest
    | SetWatchesRequest
    | PingRequest
    | CloseRequest
)
