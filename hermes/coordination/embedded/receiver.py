"""The receiving half of a client's connection: bytes -> a four-letter word, or frames.

A client that sends a known word of four letters first, not a frame, wants it answered and
the connection closed. As the length of a frame each would be far above the limit. The first frame
is a connect request.

Source: ZooKeeper's `NIOServerCnxn.readLength`.
"""

from typing import Final, NamedTuple

from hermes.coordination.embedded.zookeeper_requests import ConnectRequest, decode_connect
from hermes.errors import RemoteProtocolError
from hermes.protocol.decoding import other_protocol_hint
from hermes.protocol.framing import Frames

#: ZooKeeper's `jute.maxbuffer`: no frame may be longer, whatever it holds.
MAX_FRAME_BYTES: Final = 0xFFFFF

#: The words that are answered.
WORDS: Final = frozenset({b"conf", b"envi", b"isro", b"mntr", b"ruok", b"srvr", b"stat"})

_WORD_BYTES: Final = 4
_CONNECT_VERSION: Final = bytes(2)  # the first half of its 0


class Word(NamedTuple):
    name: str


class ClientReceiver:
    """Cuts what a client sends into what it means.

    receiver.receive_data(data)
    while (item := receiver.next_item()) is not None:
        serve(item)
    """

    __slots__ = ("_connected", "_first", "_frames")

    def __init__(self) -> None:
        self._frames = Frames(MAX_FRAME_BYTES, "a frame")
        self._first: bytes | None = b""  # until it is known whether a word comes
        self._connected = False

    def receive_data(self, data: bytes) -> None:
        if self._first is None:
            self._frames.feed(data)
            return
        self._first += data
        if len(self._first) >= _WORD_BYTES and self._first[:_WORD_BYTES] not in WORDS:
            self._frames.feed(self._first)
            self._first = None

    def limit(self, frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._frames.max_bytes = frame_bytes

    @property
    def buffered_bytes(self) -> int:
        return self._frames.buffered_bytes if self._first is None else len(self._first)

    def next_item(self) -> Word | ConnectRequest | memoryview | None:
        """Take what comes next.

        Returns:
            A word, after which nothing else counts; or a connect request; or the body of a later
            frame, as a view that keeps what was received alive; or None: more bytes must come.

        Raises:
            RemoteProtocolError: the peer broke the protocol; close the connection.
        """
        if self._first is not None:
            word = self._first[:_WORD_BYTES]
            return Word(word.decode()) if word in WORDS else None
        end = self._frames.frame_end()
        if end is None:
            return None
        body = self._frames.take(end)
        if self._connected:
            return body
        self._connected = True
        hint = other_protocol_hint(body) if body[:2] != _CONNECT_VERSION else ""
        if hint:
            raise RemoteProtocolError(f"it is no connect request{hint}")
        try:
            return decode_connect(body)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{error}{other_protocol_hint(body)}") from None
