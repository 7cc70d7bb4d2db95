"""What a TLS server agrees to, found out as testssl.sh does: by hellos written by hand.

A library refuses to offer what is broken today, so the hellos are bytes. Only the server's first
answer is looked at: a ServerHello, which says what it chose, or an alert.
"""

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SSL3, TLS1_0, TLS1_1, TLS1_2, TLS1_3 = 0x0300, 0x0301, 0x0302, 0x0303, 0x0304

#: The ciphers of Mozilla's profile "intermediate", but for those of finite-field Diffie-Hellman.
GOOD_TLS1_2 = {
    0xC02B: "ECDHE-ECDSA-AES128-GCM-SHA256",
    0xC02F: "ECDHE-RSA-AES128-GCM-SHA256",
    0xC02C: "ECDHE-ECDSA-AES256-GCM-SHA384",
    0xC030: "ECDHE-RSA-AES256-GCM-SHA384",
    0xCCA9: "ECDHE-ECDSA-CHACHA20-POLY1305",
    0xCCA8: "ECDHE-RSA-CHACHA20-POLY1305",
}
GOOD_TLS1_3 = {
    0x1301: "TLS_AES_128_GCM_SHA256",
    0x1302: "TLS_AES_256_GCM_SHA384",
    0x1303: "TLS_CHACHA20_POLY1305_SHA256",
}

#: No cipher: what clients send to say something else (RFC 5746, RFC 7507).
SIGNALS = {0x00FF, 0x5600}

HANDSHAKE_FAILURE, PROTOCOL_VERSION = 40, 70

_ALERT, _HANDSHAKE = 21, 22
_CLIENT_HELLO, _SERVER_HELLO = 1, 2


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said to a hello.

    Attributes:
        version: that it chose; None if it refused.
        cipher, compression: likewise.
        alert: why it refused, as the alert's number; None if it didn't, or just left.
        extensions: the numbers of those in its hello.
    """

    version: int | None = None
    cipher: int | None = None
    compression: int | None = None
    alert: int | None = None
    extensions: tuple[int, ...] = ()


def hello(
    address: tuple[str, int],
    version: int,
    ciphers: Iterable[int],
    *,
    compressions: Sequence[int] = (0,),
    extensions: Sequence[tuple[int, bytes]] = (),
) -> Answer:
    """Offer exactly this, and see what a server makes of it.

    Args:
        address: of the server.
        version: the highest, and from TLS 1.3 on the only one.
        ciphers: by their numbers, at most about 8,000: all has to fit into a record.
        compressions: 0 is none, 1 is DEFLATE.
        extensions: beside those without which a hello of today makes no sense.
    """
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(_client_hello(version, list(ciphers), compressions, extensions))
        return _answer(connection)


def accepted_ciphers(address: tuple[str, int], version: int, candidates: Iterable[int]) -> set[int]:
    """Find all ciphers that a server agrees to: what it chooses is left out of the next hello."""
    found: set[int] = set()
    left = sorted(set(candidates) - SIGNALS)
    chunks = [left[start : start + 7000] for start in range(0, len(left), 7000)]
    for chunk in chunks:
        while chunk:
            answer = hello(address, version, chunk)
            if answer.cipher is None:
                break
            if answer.cipher not in chunk:
                raise AssertionError(f"the server chose {answer.cipher:#06x}, which nobody offered")
            found.add(answer.cipher)
            chunk = [cipher for cipher in chunk if cipher != answer.cipher]
    return found


def _client_hello(
    version: int,
    ciphers: Sequence[int],
    compressions: Sequence[int],
    extensions: Sequence[tuple[int, bytes]],
) -> bytes:
    groups = (0x001D, 0x0017, 0x0018)  # X25519, P-256, P-384
    signatures = (0x0403, 0x0503, 0x0603, 0x0804, 0x0805, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201)
    parts = [(10, _vector(2, _int16s(groups))), (11, b"\x01\x00"), *extensions]
    if version >= TLS1_2:
        parts.append((13, _vector(2, _int16s(signatures))))
    if version >= TLS1_3:
        parts.append((43, _vector(1, _int16s([version]))))
        key_share = struct.pack(">H", 0x001D) + _vector(2, b"\x09" + bytes(31))
        parts.append((51, _vector(2, key_share)))
    body = (
        struct.pack(">H", min(version, TLS1_2))
        + os.urandom(32)
        + _vector(1, b"")  # no session
        + _vector(2, _int16s(ciphers))
        + _vector(1, bytes(compressions))
    )
    if version > SSL3:
        named = (struct.pack(">H", number) + _vector(2, content) for number, content in parts)
        body += _vector(2, b"".join(named))
    message = bytes([_CLIENT_HELLO]) + struct.pack(">I", len(body))[1:] + body
    record_version = SSL3 if version == SSL3 else TLS1_0
    return struct.pack(">BHH", _HANDSHAKE, record_version, len(message)) + message


def _answer(connection: socket.socket) -> Answer:
    head = _read(connection, 5)
    if len(head) < 5:
        return Answer()
    kind, _, size = struct.unpack(">BHH", head)
    body = _read(connection, size)
    if kind == _ALERT:
        return Answer(alert=body[1])
    if kind != _HANDSHAKE or body[0] != _SERVER_HELLO:
        raise AssertionError(f"neither an alert nor a ServerHello: {(head + body)[:40].hex()}")
    version = struct.unpack_from(">H", body, 4)[0]
    position = 4 + 2 + 32
    position += 1 + body[position]
    cipher, compression = struct.unpack_from(">HB", body, position)
    extensions = dict(_extensions(body[position + 3 :]))
    if 43 in extensions:
        version = struct.unpack(">H", extensions[43])[0]
    return Answer(version, cipher, compression, extensions=tuple(extensions))


def _extensions(data: bytes) -> Iterable[tuple[int, bytes]]:
    position, end = 2, len(data)
    if end < 2:
        return
    end = min(end, 2 + struct.unpack_from(">H", data)[0])
    while position + 4 <= end:
        number, size = struct.unpack_from(">HH", data, position)
        yield number, data[position + 4 : position + 4 + size]
        position += 4 + size


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            chunk = connection.recv(size - len(data))
        except ConnectionError:
            break
        if not chunk:
            break
        data += chunk
    return data


def _vector(width: int, content: bytes) -> bytes:
    return len(content).to_bytes(width, "big") + content


def _int16s(numbers: Iterable[int]) -> bytes:
    return b"".join(struct.pack(">H", number) for number in numbers)
