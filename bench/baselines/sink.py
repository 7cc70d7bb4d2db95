"""The bare Twisted sink: frames produce requests, checks the CRCs, appends the same bytes.

What a broker in plain Python can't do without, and nothing else: no topics, no limits, no flush,
no offsets to find. A protocol on the epoll reactor with Twisted's default settings; one `writev`
per received chunk. Its one answer: an offsets request is answered with the number of bytes
appended so far, as a broker would answer it, so that a producer can tell that all has arrived.

With a certificate it is the bare Twisted TLS sink: the same behind Twisted's own TLS and defaults.
"""

import argparse
import json
import os
from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

from twisted.internet import epollreactor

_INT32 = Struct(">i")
_TYPE_AND_TOPIC_LENGTH = Struct(">hh")
_MESSAGE_HEADER = Struct(">ibBI")  # int32 length | int8 magic 1 | int8 attributes | uint32 crc
_OFFSETS_ANSWER = Struct(">ihiq")  # int32 size | int16 error | int32 count | int64 offset

_PRODUCE = 0
_OFFSETS = 4


def _sink_protocol(path: str) -> type:
    """Build the protocol class; Twisted's reactor has to be chosen before this is imported."""
    from twisted.internet.protocol import Protocol

    class Sink(Protocol):
        """Appends every produced set to one file."""

        transport: Any

        def connectionMade(self) -> None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._appended_bytes = 0
            self._tail = b""

        def connectionLost(self, reason: object = None) -> None:
            os.close(self._file)

        def dataReceived(self, data: bytes) -> None:
            if self._tail:
                data = self._tail + data
            view = memoryview(data)
            sets: list[memoryview] = []
            position, end = 0, len(data)
            int32 = _INT32.unpack_from
            while position + 4 <= end:
                body = position + 4
                following = body + int32(data, position)[0]
                if following > end:
                    break
                request_type, topic_length = _TYPE_AND_TOPIC_LENGTH.unpack_from(data, body)
                if request_type == _PRODUCE:
                    # int16 type | int16 + topic | int32 partition | int32 set size | set
                    start = body + topic_length + 12
                    sets.append(_checked(data, view, start, int32(data, start - 4)[0]))
                elif request_type == _OFFSETS:
                    self._append(sets)
                    sets = []
                    self.transport.write(_OFFSETS_ANSWER.pack(14, 0, 1, self._appended_bytes))
                position = following
            self._append(sets)
            self._tail = data[position:]

        def _append(self, sets: list[memoryview]) -> None:
            # 64 KiB of requests hold fewer sets than one writev may (IOV_MAX, 1,024).
            if sets:
                self._appended_bytes += os.writev(self._file, sets)

    return Sink


def _checked(data: bytes, view: memoryview, start: int, size: int) -> memoryview:
    """Check the CRC of every message of a set; return the set as a view."""
    position, end = start, start + size
    header = _MESSAGE_HEADER.unpack_from
    while position < end:
        length, _magic, _attributes, crc = header(data, position)
        following = position + 4 + length
        if crc32(view[position + 10 : following]) != crc:
            raise ValueError(f"wrong CRC at {position}")
        position = following
    return view[start:end]


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True, help="what the messages are appended to")
    parser.add_argument("--certificate", help="speak TLS: a PEM file with certificate and key")
    arguments = parser.parse_args()
    epollreactor.install()  # type: ignore[no-untyped-call]
    from twisted.internet import reactor as epoll_reactor
    from twisted.internet.protocol import Factory

    reactor: Any = epoll_reactor

    factory = Factory.forProtocol(_sink_protocol(arguments.file))
    if arguments.certificate is None:
        port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    else:
        from twisted.internet.ssl import PrivateCertificate

        pem = Path(arguments.certificate).read_bytes()
        options = PrivateCertificate.loadPEM(pem).options()  # type: ignore[no-untyped-call]
        port = reactor.listenSSL(0, factory, options, interface="127.0.0.1")
    print(json.dumps({"port": port.getHost().port}), flush=True)
    reactor.run()


if __name__ == "__main__":
    main()
