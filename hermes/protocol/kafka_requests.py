"""Requests of Kafka's protocol as a client sends them: their headers, around bodies that are bytes.

    request    int32 size | int16 key | int16 version | int32 correlation id | string client id
               | tags, in flexible versions | body
    response   int32 size | int32 correlation id | tags, in flexible versions | body

A response to ApiVersions has no tags in its header in any version, so that a client of any age can
read it (KIP-511).

Source: Kafka 4's schemas of headers; KIP-482.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from hermes.errors import RemoteProtocolError
from hermes.protocol.kafka_primitives import KafkaReader
from hermes.protocol.wire import Buffer, encode_string, frame, pack

__all__ = ["API_VERSIONS", "KafkaRequest", "decode_api_versions"]

_CLIENT_ID: Final = encode_string("hermes")
_API_VERSIONS_KEY: Final = 18


class KafkaRequest(NamedTuple):
    """One request.

    Attributes:
        key: the kind of request, by its number.
        is_flexible: whether the version has tags in its header.
        client_id: as `encode_string` has it.
    """

    key: int
    version: int
    body: bytes
    is_flexible: bool = False
    client_id: bytes = _CLIENT_ID

    def encode(self, correlation_id: int) -> bytes:
        """Encode it with its size and its header; LocalProtocolError for what doesn't fit."""
        head = pack(">hhi", self.key, self.version, correlation_id)
        return frame(head, self.client_id, b"\0" if self.is_flexible else b"", self.body)

    def response_body(self, response: Buffer, correlation_id: int) -> memoryview:
        """Take the body of its response, as a view.

        Args:
            response: what follows its size.

        Raises:
            RemoteProtocolError: it is the response to another request, or has no valid header.
        """
        has_tags = self.is_flexible and self.key != _API_VERSIONS_KEY
        reader = KafkaReader(response, 0, has_tags)
        answered = reader.int32()
        if answered != correlation_id:
            raise RemoteProtocolError(
                f"there is an answer to request {answered}, where that to {correlation_id} belongs"
            )
        reader.tags()
        return reader.take(reader.remaining)


#: Asks which requests there are, in the version that every broker knows.
API_VERSIONS: Final = KafkaRequest(_API_VERSIONS_KEY, 0, b"")


def decode_api_versions(body: Buffer) -> Mapping[int, range]:
    """Which versions of which requests a broker takes, by their keys.

    Raises RemoteProtocolError: it isn't the response to `API_VERSIONS`, or is a refusal.
    """
    reader = KafkaReader(body, 0, is_flexible=False)
    code = reader.int16()
    if code:
        raise RemoteProtocolError(f"ApiVersions is answered with the error {code}")
    found = {}
    for _ in reader.each():
        key, lowest, highest = (reader.int16() for _ in range(3))
        found[key] = range(lowest, highest + 1)
    return found
