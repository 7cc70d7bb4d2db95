"""What sets each built-in encoder apart; the bytes are literal."""

import datetime

import pytest

from hermes.errors import ConfigError, EncodingError
from hermes.plugins.encoders.avro import AvroEncoder
from hermes.plugins.encoders.message_pack import MessagePackEncoder
from hermes.plugins.encoders.plain import BytesEncoder, JsonEncoder, StringEncoder

OLD = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "count", "type": "long", "default": 1},
    ],
}


def test_buffers_that_may_change_are_copied() -> None:
    buffer = bytearray(b"abc")
    payload = BytesEncoder().encode("t", buffer)
    buffer[:] = b"xyz"
    assert payload == b"abc"


def test_text_for_the_bytes_encoder_names_the_way_out() -> None:
    with pytest.raises(EncodingError, match="choose an encoder"):
        BytesEncoder().encode("t", "text")


def test_another_character_set() -> None:
    encoder = StringEncoder(encoding="latin-1")
    assert encoder.encode("t", "ü") == b"\xfc"
    with pytest.raises(EncodingError, match="latin-1"):
        encoder.encode("t", "日本")


def test_an_unknown_character_set_is_refused_early() -> None:
    with pytest.raises(ConfigError, match=r"encoder_options\.encoding"):
        StringEncoder(encoding="klingon")


@pytest.mark.parametrize(
    ("encoder", "payload"),
    [
        (StringEncoder(), b"\xff"),
        (JsonEncoder(), b"{"),
        (JsonEncoder(), b"[" * 100_000),
        (MessagePackEncoder(), b""),
        (MessagePackEncoder(), b"\xc1"),
        (MessagePackEncoder(), b"\x01\x02"),
        (AvroEncoder(OLD, 1), b""),
        (AvroEncoder(OLD, 1), b"\x01\x00\x00\x00\x01\x00"),
        (AvroEncoder(OLD, 1), b"\x00\x00\x00\x00\x01"),
        (AvroEncoder(OLD, 1), b"\x00\x00\x00\x00\x01\x7fa"),
        (AvroEncoder(OLD, 1), b"\x00\x00\x00\x00\x01\x00extra"),
    ],
)
def test_payloads_of_another_kind_are_refused(encoder, payload: bytes) -> None:
    with pytest.raises(EncodingError):
        encoder.decode("t", payload)


def test_json_is_compact_and_utf8() -> None:
    assert JsonEncoder().encode("t", {"a": "ü"}) == b'{"a":"\xc3\xbc"}'


def test_message_pack_keeps_times() -> None:
    moment = datetime.datetime(2011, 1, 6, 12, tzinfo=datetime.UTC)
    encoder = MessagePackEncoder()
    assert encoder.decode("t", encoder.encode("t", moment)) == moment


def test_the_avro_framing() -> None:
    assert AvroEncoder(OLD, 258).encode("t", {"page": "ab"}) == bytes.fromhex("0000000102046162")


def test_avro_schema_as_json_text() -> None:
    text = '{"type": "record", "name": "C", "fields": [{"name": "page", "type": "string"}]}'
    assert AvroEncoder(text, 1).encode("t", {"page": ""}) == b"\x00\x00\x00\x00\x01\x00"
    assert AvroEncoder("string", 1).encode("t", "a") == b"\x00\x00\x00\x00\x01\x02a"


def test_avro_resolves_what_an_older_schema_wrote() -> None:
    payload = AvroEncoder(OLD, 1).encode("t", {"page": "/"})
    decoder = AvroEncoder(NEW, 2, older_schemas={1: OLD})
    assert decoder.decode("t", payload) == {"page": "/", "count": 1}


def test_avro_names_the_schema_that_is_missing() -> None:
    payload = AvroEncoder(OLD, 9).encode("t", {"page": "/"})
    with pytest.raises(EncodingError, match="schema 9; add it to older_schemas"):
        AvroEncoder(NEW, 2).decode("t", payload)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"schema": OLD, "schema_id": -1}, "schema_id"),
        ({"schema": OLD, "schema_id": "1"}, "schema_id"),
        ({"schema": {"type": "recrod"}, "schema_id": 1}, "schema"),
        ({"schema": "{", "schema_id": 1}, "schema"),
        ({"schema": OLD, "schema_id": 1, "older_schemas": {1: NEW}}, "older_schemas"),
        ({"schema": OLD, "schema_id": 1, "older_schemas": {2: "nothing"}}, r"older_schemas\.2"),
    ],
)
def test_wrong_avro_options_fail_early(options, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"encoder_options\.{key}"):
        AvroEncoder(**options)
