"""Hermes' own request for the brokers of the cluster, type 81, and its response.

A client that has reached one broker learns the others' addresses, of listeners like the one that it
has reached. Framed and versioned as in `own_requests`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from hermes.protocol.error_codes import ErrorCode
from hermes.protocol.own_requests import EmptyRequest
from hermes.protocol.responses import checked_reader
from hermes.protocol.wire import Buffer, encode_string, frame, pack


class ClusterBroker(NamedTuple):
    """Where a broker of the cluster is reached: a name or an address, also of IPv6, and a port."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterBrokersRequest(EmptyRequest):
    """Type 81: ask for the brokers of the cluster."""

    TYPE: ClassVar[int] = 81


def encode_cluster_brokers_response(brokers: Sequence[ClusterBroker]) -> bytes:
    """Encode `int16 0 | int32 count | count x (int32 broker id | string host | int32 port)`."""
    parts = [pack(">hi", ErrorCode.NONE, len(brokers))]
    for broker_id, host, port in brokers:
        parts += (pack(">i", broker_id), encode_string(host), pack(">i", port))
    return frame(*parts)


def decode_cluster_brokers_response(body: Buffer) -> list[ClusterBroker]:
    reader = checked_reader(body, "brokers of the cluster")
    count = reader.count(reader.int32())
    return [ClusterBroker(reader.int32(), reader.string(), reader.int32()) for _ in range(count)]
