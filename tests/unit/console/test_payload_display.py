import json
import struct
import tracemalloc

import msgpack
import pytest
from fake_registry import fake_registry

from hermes.console.formatting import ago, bytes_text, count_text, percent, rate_text, time_text
from hermes.console.page_request import InputError
from hermes.console.payload_display import ValueReader
from hermes.console.registry_records import RegistryRecords
from hermes.errors import RegistryUnavailableError
from hermes.interfaces import IEncoder
from hermes.plugins.discovery import load_plugin
from hermes.protocol.stamps import Stamper

SCHEMA = {"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}


@pytest.mark.parametrize(
    ("payload", "kind", "summary"),
    [
        (b'{"a": [1, 2]}', "json", '{"a": [1, 2]}'),
        (b"plain", "text", "plain"),
        ("Grüße".encode(), "text", "Grüße"),
        (b"", "text", ""),
        (b"{not json", "text", "{not json"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"[" * 5000, "text", "[" * 160),
        (b'{"n": ' + b"9" * 5000 + b"}", "text", '{"n": ' + "9" * 154),
    ],
)
def test_a_payload_is_shown_as_what_it_is(payload, kind, summary):
    shown = ValueReader("auto").show(payload)
    assert (shown.kind, shown.summary, shown.problem) == (kind, summary, "")


def test_json_is_indented_and_keeps_its_characters():
    assert ValueReader("auto").show('{"a": "ü"}'.encode()).text == '{\n  "a": "ü"\n}'


def test_nothing_that_hides_or_reverses_text_is_passed_on():
    hostile = "a\u202eb\x1b[31mc\u200bd\ttab\nline\x00"
    for payload in (hostile.encode(), json.dumps({"k": hostile}).encode()):
        shown = ValueReader("auto").show(payload)
        for text in (shown.text, shown.summary):
            assert all(each.isprintable() or each in "\n\t" for each in text)
    assert "\\u202e" in ValueReader("text").show(hostile.encode()).text


def test_a_lone_surrogate_in_json_can_be_sent():
    ValueReader("json").show(b'{"a": "\\ud800"}').text.encode()


def test_what_is_too_long_is_cut_and_says_so():
    shown = ValueReader("text").show(b"x" * 10_000, 4_000)
    assert (len(shown.text), shown.left_out) == (4_000, 6_000)
    dump = ValueReader("hex").show(bytes(10_000), 4_000)
    assert dump.left_out == 9_000
    assert len(dump.text.splitlines()) == 63


def test_a_hex_dump_has_offsets_bytes_and_letters():
    dump = ValueReader("hex").show(b"<script>\x00\xff and on").text.splitlines()
    assert dump[0] == "00000000  3c 73 63 72 69 70 74 3e 00 ff 20 61 6e 64 20 6f  <script>.. and o"
    assert dump[1].startswith("00000010  6e")


def test_message_pack():
    payload = msgpack.packb({"a": b"\x01", 1: [None]})
    assert json.loads(ValueReader("msgpack").show(payload).text) == {
        "a": {"bytes": "01"},
        "1": [None],
    }


def test_avro_with_and_without_a_registrys_frame():
    encoder = load_plugin("hermes.encoders", "avro", IEncoder, schema=SCHEMA, schema_id=7)
    framed = encoder.encode("clicks", {"user": "Ann"})
    reader = ValueReader("avro", json.dumps(SCHEMA))
    for payload in (framed, framed[5:]):
        assert json.loads(reader.show(payload).text) == {"user": "Ann"}
    assert struct.unpack(">bi", framed[:5]) == (0, 7)


def test_what_is_not_of_the_format_is_shown_as_hex_with_the_reason():
    for how in ("json", "msgpack"):
        shown = ValueReader(how).show(b"\xc1")
        assert shown.kind == "hex"
        assert shown.problem


@pytest.mark.parametrize(
    ("how", "schema"), [("yaml", ""), ("avro", ""), ("avro", "{"), ("avro", '{"type": "no"}')]
)
def test_a_format_that_can_not_be_had_is_refused(how, schema):
    with pytest.raises(InputError):
        ValueReader(how, schema)


@pytest.mark.parametrize(
    ("path", "wanted", "expected"),
    [
        ("user.id", "7", True),
        ("user.id", "", True),
        ("user.name", "Ann", True),
        ("user.id", "8", False),
        ("user.none", "", False),
        ("tags.1", "b", True),
        ("tags.9", "", False),
        ("tags.x", "", False),
        ("ok", "true", True),
        ("", "", False),
    ],
)
def test_a_field_is_found_by_its_path_and_value(path, wanted, expected):
    payload = b'{"user": {"id": 7, "name": "Ann"}, "tags": ["a", "b"], "ok": true}'
    assert ValueReader("auto").has_field(path, wanted)(payload) is expected
    assert ValueReader("auto").has_field(path, wanted)(b"no json") is False


def test_numbers_and_times_for_people():
    assert [bytes_text(each) for each in (None, 0, 1023, 1024, 1536, 1023.96 * 1024)] == [
        "\N{EN DASH}", "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB",
    ]  # fmt: skip
    assert (rate_text(2048.0), rate_text(None)) == ("2.0 KiB/s", "\N{EN DASH}")
    assert (count_text(1234567), count_text(None)) == ("1,234,567", "\N{EN DASH}")
    assert (percent(1, 3), percent(5, 0), percent(9, 3)) == (33.3, 0.0, 100.0)
    assert time_text(1747476303999) == "2025-05-17 10:05:03"
    assert (time_text(None), time_text(-1), time_text(10**20)) == (
        "\N{EN DASH}",
        "\N{EN DASH}",
        str(10**20),
    )
    assert [ago(each) for each in (None, 0.2, 5, 61, 7200, 86400, 200000)] == [
        "\N{EN DASH}", "just now", "5 s ago", "1 min ago", "2 h ago", "1 day ago", "2 days ago",
    ]  # fmt: skip


def test_what_indenting_would_swell_is_cut_while_it_is_written():
    payload = b"[" * 300 + b"1," * 100_000 + b"1" + b"]" * 300  # 60 MB, indented
    tracemalloc.start()
    try:
        shown = ValueReader("json").show(payload)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(shown.text), shown.is_cut) == (4_000, True)
    assert peak_bytes < 10_000_000


def test_messagepack_may_have_keys_of_any_type_at_any_depth():
    packed = msgpack.packb([{"a": {b"b": {1: 2}}}])
    reader = ValueReader("msgpack")
    assert reader.show(packed).summary == """[{"a": {"b'b'": {"1": 2}}}]"""
    assert reader.has_field("0.a.b'b'.1", "2")(packed)


@pytest.mark.parametrize("path", ["\u00b2", "9" * 5000, "x", "", "0.0.0"])
def test_a_field_that_can_not_be_is_in_no_message(path):
    test = ValueReader("json").has_field(path, "")
    assert not any(test(payload) for payload in (b"[1, 2]", b'"text"', b"7", b"null", b"{"))


@pytest.fixture
def registry():
    with fake_registry() as served:
        served.add("clicks-value", json.dumps(SCHEMA))
        yield served


def record(user: str) -> bytes:
    return struct.pack(">bi", 0, 1) + bytes([2 * len(user)]) + user.encode()


def test_a_registrys_records_are_shown_and_found(registry):
    records = RegistryRecords(registry.url)
    for how in ("auto", "avro"):
        reader = ValueReader(how, "", records)
        shown = reader.show(record("Ann"))
        assert (shown.kind, shown.summary, shown.problem) == ("avro", '{"user": "Ann"}', "")
        assert reader.has_field("user", "Ann")(record("Ann"))
        assert not reader.has_field("user", "Ann")(record("Bob"))
    # Everything else is shown as it is without a registry.
    assert ValueReader("auto", "", records).show(b'{"a": 1}').kind == "json"
    assert ValueReader("auto", "", records).show(b"plain").kind == "text"
    assert ValueReader("json", "", records).show(record("Ann")).problem.startswith("the payload")
    unknown = struct.pack(">bi", 0, 9) + b"\xff"
    assert ValueReader("auto", "", records).show(unknown).problem == ""
    assert ValueReader("avro", "", records).show(unknown).problem.endswith("has no schema 9")
    (stamped,) = Stamper(1, "host").stamped([record("Ann")], 0)
    assert ValueReader("auto", "", records).show(stamped).summary == '{"user": "Ann"}'
    # A schema that is given comes first.
    given = json.dumps({**SCHEMA, "fields": [{"name": "u", "type": "string"}]})
    assert ValueReader("avro", given, records).show(record("Ann")).summary == '{"u": "Ann"}'
    records.close()


def test_a_registry_that_is_out_of_reach_is_said_and_left_alone(registry):
    now = [0.0]
    records = RegistryRecords(registry.url, clock=lambda: now[0])
    reader = ValueReader("auto", "", records)
    registry.faults = [503]
    for _ in range(50):
        assert "503" in reader.show(record("Ann")).problem
    assert len(registry.asked) == 1
    # A search must not pretend that nothing is there.
    with pytest.raises(RegistryUnavailableError):
        reader.has_field("user", "Ann")(record("Ann"))
    now[0] = 5.0
    assert reader.show(record("Ann")).kind == "avro"
    records.close()


def test_the_stamp_of_an_audited_producer_is_taken_off():
    (stamped,) = Stamper(1, "host").stamped([b'{"a": 1}'], 0)
    assert ValueReader("auto").show(stamped).summary == '{"a": 1}'
    assert ValueReader("json").has_field("a", "1")(stamped)
    assert ValueReader("hex").show(stamped).summary.startswith("f5 48 41 55")
