"""The response with the brokers of a cluster, byte by byte."""

import pytest

from hermes.errors import NotAuthenticatedError, RemoteProtocolError
from hermes.protocol import (
    ClusterBroker,
    decode_cluster_brokers_response,
    encode_cluster_brokers_response,
)

BROKERS = [ClusterBroker(0, "a.b", 9092), ClusterBroker(7, "::1", 1)]
GOLDEN = bytes.fromhex(
    "00000020 0000 00000002 00000000 0003612e62 00002384 00000007 00033a3a31 00000001"
)


def test_its_bytes() -> None:
    assert encode_cluster_brokers_response(BROKERS) == GOLDEN
    assert decode_cluster_brokers_response(GOLDEN[4:]) == BROKERS
    nobody = bytes.fromhex("00000006 0000 00000000")
    assert encode_cluster_brokers_response([]) == nobody
    assert decode_cluster_brokers_response(nobody[4:]) == []


def test_what_is_cut_short_or_refused() -> None:
    for end in range(4, len(GOLDEN)):
        with pytest.raises(RemoteProtocolError):
            decode_cluster_brokers_response(GOLDEN[4:end])
    with pytest.raises(RemoteProtocolError):
        decode_cluster_brokers_response(bytes.fromhex("0000 ffffffff"))
    with pytest.raises(NotAuthenticatedError):
        decode_cluster_brokers_response(bytes.fromhex("004f"))
