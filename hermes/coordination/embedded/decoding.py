"""Requests: bytes -> values.

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

Source: ZooKeeper's `zookeeper.jute`.
"""

from collections.abc import Callable
from typing import Final

from hermes.coordination.embedded.errors import ErrorCode, RequestRefusedError
from hermes.coordination.embedded.jute import JuteReader
from hermes.coordination.embedded.limits import (
    MAX_ACL_ENTRIES,
    MAX_OPERATIONS,
    MAX_WATCHES_SET,
)
from hermes.coordination.embedded.records import Acl
from hermes.coordination.embedded.requests import (
    AuthRequest,
    CheckRequest,
    CloseRequest,
    ConnectRequest,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetAclRequest,
    GetChildrenRequest,
    GetDataRequest,
    MultiRequest,
    OpCode,
    Operation,
    PingRequest,
    Request,
    SetAclRequest,
    SetDataRequest,
    SetWatchesRequest,
    SyncRequest,
)
from hermes.errors import RemoteProtocolError

__all__ = ["KNOWN_TYPES", "decode_connect", "decode_request"]

_RECONFIGURE: Final = 16  # known to ZooKeeper, and disabled there unless told otherwise

#: What ZooKeeper 3.8 knows. Whoever sends anything else speaks another protocol. Not served: 17 and
#: 18 (checking and removing watches), 19 to 21 (containers, time to live), 22 (reads in one), 102
#: (SASL), 103 and 104 (ephemerals, counting), 105 and 106 (persistent watches), 107 (who am I).
KNOWN_TYPES: Final = frozenset({*OpCode, _RECONFIGURE, *range(17, 23), *range(102, 108)})


def decode_connect(body: memoryview) -> ConnectRequest:
    """Decode the first frame of a connection.

    Raises:
        RemoteProtocolError: it is no connect request; close the connection.
    """
    reader = JuteReader(body)
    reader.int32()  # the protocol's version, 0 ever since
    last_zxid, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
    password = reader.buffer() or b""
    read_only = reader.boolean() if reader.remaining else None
    return ConnectRequest(last_zxid, timeout_ms, session_id, password, read_only)


def decode_request(code: int, reader: JuteReader) -> Request:
    """Decode a request's body.

    Args:
        code: the type in the request's header.
        reader: stands behind the header. Nothing of what it reads is kept as a view.

    Raises:
        RequestRefusedError: with UNIMPLEMENTED for a type that is not served, with
            RECONFIGURATION_DISABLED as every ZooKeeper does unless told otherwise, with
            MARSHALLING_ERROR for a body that can't be read, INVALID_ACL or BAD_ARGUMENTS for one
            that holds more than is let in.
    """
    if code == _RECONFIGURE:
        raise RequestRefusedError(ErrorCode.RECONFIGURATION_DISABLED)
    decode = _DECODERS.get(code)
    if decode is None:
        raise RequestRefusedError(ErrorCode.UNIMPLEMENTED, f"request type {code}")
    try:
        return decode(reader)
    except RemoteProtocolError as error:
        raise RequestRefusedError(ErrorCode.MARSHALLING_ERROR, str(error)) from error


def _acl(reader: JuteReader) -> tuple[Acl, ...]:
    count = reader.int32()
    if count > MAX_ACL_ENTRIES:
        raise RequestRefusedError(ErrorCode.INVALID_ACL, f"{count} entries")
    return tuple(Acl.read(reader) for _ in range(count))


def _create(reader: JuteReader) -> CreateRequest:
    return CreateRequest(reader.string(), reader.buffer(), _acl(reader), reader.int32())


def _create2(reader: JuteReader) -> CreateRequest:
    return CreateRequest(reader.string(), reader.buffer(), _acl(reader), reader.int32(), True)


def _delete(reader: JuteReader) -> DeleteRequest:
    return DeleteRequest(reader.string(), reader.int32())


def _check(reader: JuteReader) -> CheckRequest:
    return CheckRequest(reader.string(), reader.int32())


def _set_data(reader: JuteReader) -> SetDataRequest:
    return SetDataRequest(reader.string(), reader.buffer(), reader.int32())


def _set_acl(reader: JuteReader) -> SetAclRequest:
    return SetAclRequest(reader.string(), _acl(reader), reader.int32())


def _set_watches(reader: JuteReader) -> SetWatchesRequest:
    zxid, left, lists = reader.int64(), MAX_WATCHES_SET, []
    for _ in range(3):
        lists.append(reader.vector(reader.string, left))
        left -= len(lists[-1])
    return SetWatchesRequest(zxid, *lists)


def _auth(reader: JuteReader) -> AuthRequest:
    reader.int32()  # always 0
    return AuthRequest(reader.string(), reader.buffer() or b"")


_OPERATIONS: Final[dict[int, Callable[[JuteReader], Operation]]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create2,
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.CHECK: _check,
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
            raise RequestRefusedError(ErrorCode.BAD_ARGUMENTS, "too many operations")
        operations.append(_OPERATIONS[code](reader))


_DECODERS: Final[dict[int, Callable[[JuteReader], Request]]] = {
    **{code: decode for code, decode in _OPERATIONS.items() if code != OpCode.CHECK},
    OpCode.EXISTS: lambda reader: ExistsRequest(reader.string(), reader.boolean()),
    OpCode.GET_DATA: lambda reader: GetDataRequest(reader.string(), reader.boolean()),
    OpCode.GET_CHILDREN: lambda reader: GetChildrenRequest(
        reader.string(), reader.boolean(), False
    ),
    OpCode.GET_CHILDREN2: lambda reader: GetChildrenRequest(
        reader.string(), reader.boolean(), True
    ),
    OpCode.GET_ACL: lambda reader: GetAclRequest(reader.string()),
    OpCode.SET_ACL: _set_acl,
    OpCode.SYNC: lambda reader: SyncRequest(reader.string()),
    OpCode.MULTI: _multi,
    OpCode.AUTH: _auth,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.PING: lambda reader: PingRequest(),
    OpCode.CLOSE: lambda reader: CloseRequest(),
}
