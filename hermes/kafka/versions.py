"""ApiVersions: which requests a broker takes. A constant for each version of the response.

    v0     int16 error | array of (int16 key | int16 lowest | int16 highest)
    v1-2   ... | int32 throttle time
    v3-4   int16 error | compact array of (key | lowest | highest | tags) | int32 | tags:
           0   what could be: compact array of (name | int16 lowest | int16 highest | tags)
           1   int64 epoch of what the cluster has settled on
           2   that: compact array of (name | int16 highest | int16 lowest | tags)

Features are `group.version` 1: consumer groups (KIP-848), and `transaction.version` 2: a producer's
epoch grows with each transaction (KIP-890). Until v4 no feature may begin at 0, and so they are
left out of the first list there, as Kafka does.

The response's header is the old one in all versions, so that a client of any age can read it. A
version that isn't known is answered in v0 with UNSUPPORTED_VERSION and the versions that are, after
which clients ask again (KIP-511).
"""

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from hermes.kafka.apis import API_VERSIONS, APIS, Api
from hermes.protocol.kafka_errors import Code
from hermes.protocol.kafka_primitives import KafkaReader, varint
from hermes.protocol.wire import Buffer

_ENTRY: Final = Struct(">hhh")
_PLAIN_HEAD: Final = Struct(">hi")
_NO_TIME: Final = bytes(4)
_NO_TAGS: Final = b"\0"
_FEATURES: Final = ((b"group.version", 1), (b"transaction.version", 2))
_LEVELS: Final = Struct(">hh")

_FLEXIBLE: Final = 3

# KIP-511: what the name and the version of a client's software may consist of.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LONGEST_SOFTWARE: Final = 1024


def _entry(api: Api) -> bytes:
    lowest = api.lowest if api.announced is None else api.announced
    return _ENTRY.pack(api.key, lowest, api.highest)


def _response(version: int, error: Code, apis: Iterable[Api]) -> bytes:
    entries = [_entry(api) for api in apis]
    if version < _FLEXIBLE:
        body = _PLAIN_HEAD.pack(error, len(entries)) + b"".join(entries)
        return body + _NO_TIME if version else body
    head = int(error).to_bytes(2, signed=True) + varint(len(entries) + 1)
    tags = _NO_TAGS if error else _features(has_lowest=version > _FLEXIBLE)
    return head + b"".join(entry + _NO_TAGS for entry in entries) + _NO_TIME + tags


def _features(*, has_lowest: bool) -> bytes:
    settled = _list_of([(name, highest, highest) for name, highest in _FEATURES])
    tags = [(1, bytes(8)), (2, settled)]
    if has_lowest:
        tags.insert(0, (0, _list_of([(name, 0, highest) for name, highest in _FEATURES])))
    written = (varint(tag) + varint(len(data)) + data for tag, data in tags)
    return varint(len(tags)) + b"".join(written)


def _list_of(features: Sequence[tuple[bytes, int, int]]) -> bytes:
    parts = [varint(len(features) + 1)]
    for name, *levels in features:
        parts += varint(len(name) + 1), name, _LEVELS.pack(*levels), _NO_TAGS
    return b"".join(parts)


_OWN: Final = APIS[API_VERSIONS]
_UNSUPPORTED: Final = _response(0, Code.UNSUPPORTED_VERSION, (_OWN,))
_ANSWERS: Final = [
    _response(version, Code.NONE, APIS.values()) for version in range(_OWN.highest + 1)
]


def is_flexible(version: int) -> bool:
    return _FLEXIBLE <= version <= _OWN.highest


def answer(version: int, body: Buffer) -> bytes:
    """Answer an ApiVersions request; what follows the response's correlation id.

    `body` is what follows the request's header; RemoteProtocolError if it ends early.
    """
    if not 0 <= version <= _OWN.highest:
        return _UNSUPPORTED
    if version >= _FLEXIBLE and not _names_software(KafkaReader(body, 0, is_flexible=True)):
        return _response(version, Code.INVALID_REQUEST, ())
    return _ANSWERS[version]


def _names_software(body: KafkaReader) -> bool:
    said = [body.text() or "" for _ in range(2)]
    body.tags()
    return all(len(each) <= _LONGEST_SOFTWARE and _SOFTWARE.fullmatch(each) for each in said)
