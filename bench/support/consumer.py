"""A consumer that waits at the end of the log: Hermes' waiting fetch, one partition."""

import socket
from struct import Struct

from bench.support.load import latest_offset, read_answer
from hermes.protocol import FetchRequest, MessageSet, WaitingFetchRequest

__all__ = ["WaitingConsumer"]

#: Behind the answer's own error code: int16 count | int16 error | int64 high watermark | int32 size
_ENTRY = Struct(">hhqi")
_MAX_WAIT_MS = 1_000
_MAX_BYTES = 1_000_000


class WaitingConsumer:
    """Reads partition 0 of a topic from its beginning.

    Attributes:
        offset: where the next request starts.
    """

    def __init__(
        self, connection: socket.socket, topic: str, *, max_wait_ms: int = _MAX_WAIT_MS
    ) -> None:
        """Args: connection: its own; topic: what it reads; max_wait_ms: how long fetches wait."""
        self._connection = connection
        self._topic = topic
        self._max_wait_ms = max_wait_ms
        self.offset = 0

    def seek_to_end(self) -> None:
        """Go on behind what is visible now."""
        self.offset = latest_offset(self._connection, self._topic)

    def request(self) -> None:
        """Ask for more; the answer comes when there is some, or after the wait."""
        fetch = FetchRequest(self._topic, 0, self.offset, _MAX_BYTES)
        self._connection.sendall(WaitingFetchRequest(self._max_wait_ms, 1, (fetch,)).encode())

    def payloads(self) -> list[bytes]:
        """Read the answer and move behind its last whole message."""
        messages = MessageSet(self._answer(), self.offset)
        payloads = []
        for message, next_offset in messages:
            payloads.append(message.payload)
            self.offset = next_offset
        return payloads

    def skip(self) -> None:
        """Read the answer and move behind its last byte, without looking at the messages."""
        self.offset += len(self._answer())

    def _answer(self) -> memoryview:
        body = read_answer(self._connection)
        _count, error, _high_watermark, size = _ENTRY.unpack_from(body)
        if error:
            raise ConnectionError(f"the broker answered the fetch with error {error}")
        return body[_ENTRY.size : _ENTRY.size + size]
