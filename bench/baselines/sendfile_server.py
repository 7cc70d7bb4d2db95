"""The raw sendfile loop: answers fetch requests from one file with blocking calls.

One client at a time. TCP_NODELAY on the socket and MSG_MORE on the header, so that header and
body leave in one train of segments; then `sendfile` until the body is out. No framework, no
limits, no look at what is in the file. However many requests the client has in flight, they are
answered one after the other.
"""

import argparse
import json
import os
import socket
from struct import Struct

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_OFFSET_AND_SIZE = Struct(">qi")
_ANSWER_HEADER = Struct(">ih")  # int32 size | int16 error


def _serve(connection: socket.socket, file: int, file_bytes: int) -> None:
    """Answer a client's fetches until it hangs up."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        while len(received) >= 4:
            end = 4 + _INT32.unpack_from(received)[0]
            if len(received) < end:
                break
            # int32 size | int16 type | int16 + topic | int32 partition | int64 offset | int32 max
            topic_length = _INT16.unpack_from(received, 6)[0]
            offset, max_bytes = _OFFSET_AND_SIZE.unpack_from(received, 12 + topic_length)
            received = received[end:]
            _answer(connection, file, offset, max(0, min(max_bytes, file_bytes - offset)))


def _answer(connection: socket.socket, file: int, offset: int, length: int) -> None:
    connection.send(_ANSWER_HEADER.pack(2 + length, 0), socket.MSG_MORE)
    out = connection.fileno()
    end = offset + length
    while offset < end:
        offset += os.sendfile(out, file, offset, end - offset)


def main() -> None:
    """Serve one client after the other until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True, help="what is served")
    file = os.open(parser.parse_args().file, os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    while True:
        connection, _address = listener.accept()
        with connection:
            try:
                _serve(connection, file, os.fstat(file).st_size)
            except ConnectionError:
                continue


if __name__ == "__main__":
    main()
