"""Kafka's headers as a client writes and reads them, against literal bytes."""

import pytest

from hermes.errors import LocalProtocolError, RemoteProtocolError
from hermes.protocol.kafka_requests import API_VERSIONS, KafkaRequest, decode_api_versions

METADATA = KafkaRequest(3, 1, b"\0\0\0\0")
FETCH = KafkaRequest(1, 18, b"body", is_flexible=True)


def test_a_request_has_its_size_and_its_header() -> None:
    assert METADATA.encode(5) == bytes.fromhex(
        "00000014 0003 0001 00000005 0006 6865726d6573 00000000"
    )
    assert FETCH.encode(-1) == bytes.fromhex(
        "00000015 0001 0012 ffffffff 0006 6865726d6573 00 626f6479"
    )
    assert API_VERSIONS.encode(0) == bytes.fromhex("00000010 0012 0000 00000000 0006 6865726d6573")


def test_a_response_is_what_follows_its_header() -> None:
    assert METADATA.response_body(bytes.fromhex("00000005 626f6479"), 5) == b"body"
    assert METADATA.response_body(bytes.fromhex("00000005"), 5) == b""
    assert FETCH.response_body(bytes.fromhex("00000005 00 626f6479"), 5) == b"body"
    tagged = memoryview(bytearray.fromhex("00000005 02 0702abcd 0800 626f6479"))
    assert FETCH.response_body(tagged, 5) == b"body"


def test_the_response_to_api_versions_has_no_tags_in_its_header() -> None:
    request = KafkaRequest(18, 4, b"", is_flexible=True)
    assert request.response_body(bytes.fromhex("00000005 0000 01"), 5) == b"\0\0\1"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ("", "0 bytes are left"),
        ("000000", "3 bytes are left"),
        ("00000006 00", "an answer to request 6, where that to 5 belongs"),
        ("80000005 00", "an answer to request -2147483643"),
        ("00000005", "a number that doesn't end"),
        ("00000005 ffffffffff", "a number that doesn't end"),
        ("00000005 41", "it has 65 tags"),
        ("00000005 01 07", "a number that doesn't end"),
        ("00000005 01 07 05 00", "a length of 5 where 1 bytes are left"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(response: str, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        FETCH.response_body(bytes.fromhex(response), 5)


def test_what_the_wire_can_not_carry_is_the_callers_mistake() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(LocalProtocolError):
        KafkaRequest(1, 18, Huge()).encode(1)


def test_the_versions_of_requests_are_by_their_keys() -> None:
    body = bytes.fromhex("0000 00000002 0000 0003 000d 0001 0004 0012")
    assert decode_api_versions(body) == {0: range(3, 14), 1: range(4, 19)}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("0023 00000000", "the error 35"),
        ("0000 ffffffff", "a count is -1"),
        ("0000 7fffffff 0000 0003 000d", "0 bytes are left"),
        ("0000 00000001 0000 0003", "0 bytes are left"),
        ("00", "1 bytes are left"),
    ],
)
def test_versions_that_can_not_be_read_are_refused(body: str, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode_api_versions(bytes.fromhex(body))
