"""What the server sends: responses, results of transactions, watch events.

    frame     int length | ...
    connect   int version (0) | int timeout | long session | buffer password [| boolean read only]
    response  int xid | long zxid | int error | body (none when there is an error)
    event     int xid (-1) | long -1 | int 0 | int type | int state (3, connected) | string path
    multi     (int type | boolean done | int error | result)*, ended by -1, true, -1

Source: ZooKeeper's `zookeeper.jute`, `MultiResponse`.
"""

import struct
from collections.abc import Iterable
from typing import Final

from hermes.coordination.embedded.jute import encode_buffer, encode_string
from hermes.coordination.embedded.jute_records import EventType
from hermes.coordination.embedded.zookeeper_errors import ZooKeeperCode
from hermes.coordination.embedded.zookeeper_requests import OpCode
from hermes.protocol.wire import frame

_CONNECT: Final = struct.Struct(">iiq")
_HEADER: Final = struct.Struct(">iqi")
_EVENT: Final = struct.Struct(">ii")
_RESULT: Final = struct.Struct(">i?i")
_INT: Final = struct.Struct(">i")
_END: Final = _RESULT.pack(-1, True, -1)
_CONNECTED: Final = 3
_PASSWORD_BYTES: Final = 16


def encode_connect_response(
    session: tuple[int, bytes] | None, timeout_ms: int, *, with_read_only: bool
) -> bytes:
    """Answer a connect request with a whole frame.

    Args:
        session: its id and password; None says that the one it asked for has expired.
        timeout_ms: the session timeout in force.
        with_read_only: whether the client sent that byte and so expects it back.
    """
    if session is None:
        session, timeout_ms = (0, bytes(_PASSWORD_BYTES)), 0
    head = _CONNECT.pack(0, timeout_ms, session[0])
    return frame(head, encode_buffer(session[1]), b"\0" if with_read_only else b"")


def encode_response(xid: int, zxid: int, error: int = ZooKeeperCode.OK, body: bytes = b"") -> bytes:
    """A whole frame, without a body unless the error is OK; `zxid`: the newest that it reflects."""
    return frame(_HEADER.pack(xid, zxid, error), b"" if error else body)


def encode_event(kind: EventType, path: str) -> bytes:
    return frame(_HEADER.pack(-1, -1, 0), _EVENT.pack(kind, _CONNECTED), encode_string(path))


def encode_results(results: Iterable[tuple[OpCode, bytes]]) -> bytes:
    """Encode a transaction's results: of each operation its type and its response's record."""
    parts = [_RESULT.pack(code, False, 0) + body for code, body in results]
    return b"".join((*parts, _END))


def encode_failed_results(failed: int, count: int, code: ZooKeeperCode) -> bytes:
    """Encode the results of a transaction of which nothing was carried out.

    The operations before the one that failed, by its index, count as rolled back (0), those after
    it as not tried (RUNTIME_INCONSISTENCY).
    """
    codes = [ZooKeeperCode.OK] * failed + [code]
    codes += [ZooKeeperCode.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    parts = [_RESULT.pack(OpCode.ERROR, False, each) + _INT.pack(each) for each in codes]
    return b"".join((*parts, _END))
