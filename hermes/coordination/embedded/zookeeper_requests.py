"""Requests: bytes -> values. Served is what kazoo 2.11 and the Java clients of Kafka 0.7 send.

The first frame of a connection is a connect request; every later one is
`int xid | int type | body`. A body that can't be read is answered with MARSHALLING_ERROR; a type
that is not known is answered with UNIMPLEMENTED.

    create, create2   string path | buffer data | vector<ACL> | int flags
    delete, check     string path | int version
    exists, getData, getChildren, getChildren2   string path | boolean watch
    setData           string path | buffer data | int version
    getACL, sync      string path
    setACL            string path | vector<ACL> | int version
    multi             (int type | boolean done | int error | body)*, ended by one that is done
    auth              int type | string scheme | buffer credential
    setWatches        long relative zxid | vector<string> data, exists, children
    connect           int version | long last zxid | int timeout | long session | buffer password
                      [| boolean read only]       clients before ZooKeeper 3.4 end here, without it

Source: ZooKeeper's `zookeeper.jute` and `ZooDefs.OpCode`.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.coordination.embedded.jute import JuteReader
from hermes.coordination.embedded.jute_records import Acl
from hermes.coordination.embedded.limits import (
    MAX_ACL_ENTRIES,
    MAX_OPERATIONS,
    MAX_WATCHES_SET,
)
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.errors import RemoteProtocolError


class OpCode(IntEnum):
    """The types of requests that are served; -1 is an error in a transaction's results."""

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


_RECONFIGURE: Final = 16  # known to ZooKeeper, and disabled there by default

#: What ZooKeeper 3.8 knows. A client that sends anything else speaks another protocol. Not served:
#: 17 and 18 (checking and removing watches), 19 to 21 (containers, time to live), 22 (multi-read),
#: 102 (SASL), 103 and 104 (ephemerals, counting), 105 and 106 (persistent watches), 107 (who am I).
KNOWN_TYPES: Final = frozenset({*OpCode, _RECONFIGURE, *range(17, 23), *range(102, 108)})


class ConnectRequest(NamedTuple):
    """A client asks for a session, or to resume one.

    Attributes:
        session_id: 0 for a new session.
        read_only: whether a read-only server would do; None when the client is too old to say,
            and does not understand a response that says so either.
    """

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool | None


class CreateRequest(NamedTuple):
    """Create a node; `flags` 1 makes it ephemeral, 2 sequential; `with_stat` is create2."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int
    with_stat: bool = False


class DeleteRequest(NamedTuple):
    """Delete a node, whose version must match unless it is -1."""

    path: str
    version: int


class CheckRequest(NamedTuple):
    path: str
    version: int


class SetDataRequest(NamedTuple):
    """Set a node's data; its version must match unless it is -1."""

    path: str
    data: bytes | None
    version: int


class SetAclRequest(NamedTuple):
    """Set a node's ACL; its ACL's version must match unless it is -1."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class ExistsRequest(NamedTuple):
    """Ask for a node's stat; the watch is set whether or not there is a node."""

    path: str
    watch: bool


class GetDataRequest(NamedTuple):
    path: str
    watch: bool


class GetChildrenRequest(NamedTuple):
    """Ask for the names of a node's children; `with_stat` is getChildren2."""

    path: str
    watch: bool
    with_stat: bool = False


class GetAclRequest(NamedTuple):
    path: str


class SyncRequest(NamedTuple):
    """Wait for everything before; the path is only given back."""

    path: str


class AuthRequest(NamedTuple):
    scheme: str
    credential: bytes


class SetWatchesRequest(NamedTuple):
    """Set the watches of a former connection again; what was missed since `zxid` fires at once."""

    zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    children: tuple[str, ...]


class PingRequest(NamedTuple):
    """A sign of life."""


class CloseRequest(NamedTuple):
    """End the session."""


#: What a transaction may hold.
Operation: TypeAlias = CreateRequest | DeleteRequest | SetDataRequest | CheckRequest


class MultiRequest(NamedTuple):
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

_Decoder: TypeAlias = Callable[[JuteReader], Any]


def decode_connect(body: memoryview) -> ConnectRequest:
    """Decode the first frame of a connection. Raises RemoteProtocolError."""
    reader = JuteReader(body)
    reader.int32()  # the protocol's version, 0 ever since
    last_zxid, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
    password = reader.buffer() or b""
    read_only = reader.boolean() if reader.remaining else None
    return ConnectRequest(last_zxid, timeout_ms, session_id, password, read_only)


def decode_request(code: int, reader: JuteReader) -> Request:
    """Decode a request's body, of the type `code`; nothing of it is kept as a view.

    Raises:
        RequestRefusedError: with UNIMPLEMENTED for a type that is not served, with
            RECONFIGURATION_DISABLED as ZooKeeper does by default, with
            MARSHALLING_ERROR for a body that can't be read, INVALID_ACL or BAD_ARGUMENTS for one
            that holds more than is let in.
    """
    if code == _RECONFIGURE:
        raise RequestRefusedError(ZooKeeperCode.RECONFIGURATION_DISABLED)
    decode = _DECODERS.get(code)
    if decode is None:
        raise RequestRefusedError(ZooKeeperCode.UNIMPLEMENTED, f"request type {code}")
    try:
        request: Request = decode(reader)
    except RemoteProtocolError as error:
        raise RequestRefusedError(ZooKeeperCode.MARSHALLING_ERROR, str(error)) from error
    return request


def _acl(reader: JuteReader) -> tuple[Acl, ...]:
    count = reader.int32()
    if count > MAX_ACL_ENTRIES:
        raise RequestRefusedError(ZooKeeperCode.INVALID_ACL, f"{count} entries")
    return tuple(Acl.read(reader) for _ in range(count))


def _set_watches(reader: JuteReader) -> SetWatchesRequest:
    zxid, left, lists = reader.int64(), MAX_WATCHES_SET, []
    for _ in range(3):
        lists.append(reader.vector(reader.string, left))
        left -= len(lists[-1])
    return SetWatchesRequest(zxid, *lists)


def _auth(reader: JuteReader) -> AuthRequest:
    reader.int32()  # always 0
    return AuthRequest(reader.string(), reader.buffer() or b"")


def _body(kind: Callable[..., Any], *fields: Callable[[JuteReader], Any]) -> _Decoder:
    return lambda reader: kind(*(field(reader) for field in fields))


_INT, _STRING, _BUFFER, _BOOLEAN = (
    JuteReader.int32,
    JuteReader.string,
    JuteReader.buffer,
    JuteReader.boolean,
)

_OPERATIONS: Final[dict[int, _Decoder]] = {
    OpCode.CREATE: _body(CreateRequest, _STRING, _BUFFER, _acl, _INT),
    OpCode.CREATE2: _body(partial(CreateRequest, with_stat=True), _STRING, _BUFFER, _acl, _INT),
    OpCode.DELETE: _body(DeleteRequest, _STRING, _INT),
    OpCode.SET_DATA: _body(SetDataRequest, _STRING, _BUFFER, _INT),
    OpCode.CHECK: _body(CheckRequest, _STRING, _INT),
}


def _multi(reader: JuteReader) -> MultiRequest:
    operations: list[Operation] = []
    while True:
        code, done, _ = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return MultiRequest(tuple(operations))
        if code not in _OPERATIONS:
            raise RemoteProtocolError(f"a transaction holds an operation of type {code}")
        if len(operations) == MAX_OPERATIONS:
            raise RequestRefusedError(ZooKeeperCode.BAD_ARGUMENTS, "too many operations")
        operations.append(_OPERATIONS[code](reader))


_DECODERS: Final[dict[int, _Decoder]] = {
    **{code: decode for code, decode in _OPERATIONS.items() if code != OpCode.CHECK},
    OpCode.EXISTS: _body(ExistsRequest, _STRING, _BOOLEAN),
    OpCode.GET_DATA: _body(GetDataRequest, _STRING, _BOOLEAN),
    OpCode.GET_CHILDREN: _body(GetChildrenRequest, _STRING, _BOOLEAN),
    OpCode.GET_CHILDREN2: _body(partial(GetChildrenRequest, with_stat=True), _STRING, _BOOLEAN),
    OpCode.GET_ACL: _body(GetAclRequest, _STRING),
    OpCode.SET_ACL: _body(SetAclRequest, _STRING, _acl, _INT),
    OpCode.SYNC: _body(SyncRequest, _STRING),
    OpCode.MULTI: _multi,
    OpCode.AUTH: _auth,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.PING: _body(PingRequest),
    OpCode.CLOSE: _body(CloseRequest),
}
