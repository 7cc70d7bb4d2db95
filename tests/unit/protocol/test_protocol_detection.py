"""Who has the wrong port, by the bytes with which clients begin, and servers answer."""

import pytest

from hermes.coordination.embedded.receiver import ClientReceiver
from hermes.errors import RemoteProtocolError
from hermes.kafka.connection import FrameReceiver
from hermes.protocol import (
    FetchRequest,
    MetadataRequest,
    MultiFetchRequest,
    OffsetsRequest,
    RequestReceiver,
    ResponseReceiver,
)
from hermes.protocol.decoding import LONG_ENTRIES, other_protocol_hint
from hermes.protocol.protocol_detection import KAFKA_PROBE, is_kafka_answer, is_zookeeper_connect

# What kazoo sends first, without and with "read only": a length and then the request.
CONNECT = bytes.fromhex(
    "0000002c" "00000000" "0000000000000000" "00001770" "0000000000000000" "00000010" + "00" * 16
)  # fmt: skip
CONNECT_AGAIN = bytes.fromhex(
    "0000002d" "00000000" "0000000000000021" "00001770" "0100000000000007" "00000010"
    + "ab" * 16 + "01"
)  # fmt: skip
# librdkafka's first: ApiVersions 3, correlation 1, client "rdkafka", no tags, its name and version.
API_VERSIONS = bytes.fromhex(
    "00000023" "0012" "0003" "00000001" "0007" "72646b61666b61" "00" "0b" "6c696272646b61666b61"
    "06" "322e332e30" "00"
)  # fmt: skip
HTTP = "it is HTTP, for which there is the port of http_listen"
TLS = "it is TLS, which this listener does not have"
ZOOKEEPER = "it is a ZooKeeper client, for which there is the port of coordination_listen"
KAFKA = "current Kafka clients begin like this; they need a port of kafka_listen"
BROKER = "it is a client of Hermes' own or of Kafka 0.7, for which there is the port of listen"

COMMON = [
    (b"GET / HTTP/1.1\r\n", HTTP),
    (b"PUT /subjects HTTP/1.1\r\n", HTTP),
    (b"PRI * HTTP/2.0\r\n", HTTP),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", TLS),
]


def refused_by(receiver, take: str, data: bytes) -> str:
    receiver.receive_data(data)
    with pytest.raises(RemoteProtocolError) as caught:
        getattr(receiver, take)()
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [*COMMON, (b"ruok", ZOOKEEPER), (CONNECT, ZOOKEEPER), (CONNECT_AGAIN, ZOOKEEPER),
     (API_VERSIONS, KAFKA), (KAFKA_PROBE, KAFKA)],
)  # fmt: skip
def test_at_a_broker_s_port(data: bytes, said: str) -> None:
    receiver = RequestReceiver(1 << 20, 1 << 20)
    assert refused_by(receiver, "next_request", data).endswith(f": {said}")


@pytest.mark.parametrize(("data", "said"), [*COMMON, (b"srvr", ZOOKEEPER)])
def test_at_a_port_for_kafka_s_clients(data: bytes, said: str) -> None:
    assert refused_by(FrameReceiver(1 << 20), "next_request", data).endswith(f": {said}")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *COMMON,
        (API_VERSIONS, KAFKA),
        (KAFKA_PROBE, KAFKA),
        (MetadataRequest(()).encode(), BROKER),
        (FetchRequest("clicks", 0, 0, 1000).encode(), BROKER),
        (OffsetsRequest("clicks", 0, -1, 1).encode(), BROKER),
    ],
)
def test_at_a_port_of_coordination(data: bytes, said: str) -> None:
    assert refused_by(ClientReceiver(), "next_item", data).endswith(f": {said}")


@pytest.mark.parametrize("data", [CONNECT, CONNECT_AGAIN])
def test_who_is_right_there_is_served(data: bytes) -> None:
    receiver = ClientReceiver()
    receiver.receive_data(data)
    assert receiver.next_item() is not None
    assert is_zookeeper_connect(data[4:])
    assert not is_zookeeper_connect(data)


def test_very_many_entries_are_not_decoded_for_a_hint() -> None:
    entry = FetchRequest("clicks", 0, 0, 1000)
    few, many = (MultiFetchRequest([entry] * n).encode()[4:] for n in (2, LONG_ENTRIES + 1))
    assert other_protocol_hint(few) == f": {BROKER}"
    assert other_protocol_hint(many) == ""


def test_nonsense_is_nobody() -> None:
    assert other_protocol_hint(b"\xff" * 44) == ""
    assert other_protocol_hint(b"") == ""
    text = refused_by(RequestReceiver(1 << 20, 1 << 20), "next_request", b"\xff" * 44)
    assert text == "a request declares -1 bytes; 1 to 1048576 are allowed"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", r"box:1 speaks HTTP: give the broker's port \(listen\)"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "box:1 speaks TLS: set tls_ca"),
        (b"Zookeeper version: 3.9.3", "box:1 is ZooKeeper, or a broker's coordination"),
        (b"This ZooKeeper instance is not", "box:1 is ZooKeeper, or a broker's coordination"),
        (b"\xff\xff\xff\xff", "box:1 sent an answer of -1 bytes"),
    ],
)
def test_what_servers_answer(data: bytes, said: str) -> None:
    receiver = ResponseReceiver(1 << 20, "box:1")
    receiver.receive_data(data)
    with pytest.raises(RemoteProtocolError, match=f"^{said}"):
        receiver.next_response()


def test_kafka_repeats_the_number_that_it_was_given() -> None:
    assert is_kafka_answer(KAFKA_PROBE[8:12] + bytes(8))
    assert not is_kafka_answer(bytes(12))
