import json

import pytest

from hermes.cli.message_formats import (
    ConsumedMessage,
    MessageFormat,
    choose_renderer,
    consumed_messages,
    json_line,
)
from hermes.cli.partition_reader import Chunk
from hermes.cli.terminal import harmless
from hermes.protocol import RecordSet
from hermes.protocol.records import Record, encode_batch

MESSAGE = ConsumedMessage("clicks", 3, 1000, 1015, b"a\xffb")


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("", b""),
        ("%s", b"a\xffb"),
        (r"%s\n", b"a\xffb\n"),
        (r"%t [%p] %o-%O: %S bytes\n", b"clicks [3] 1000-1015: 3 bytes\n"),
        ("%R", b"\x00\x00\x00\x03"),
        ("%k|%K|%T|%h", b"|-1|-1|"),
        (r"100%%\t\r\\\0\x41\n", b"100%\t\r\\\x00A\n"),
        ("é\n", b"\xc3\xa9\n"),
        ("\udcff", b"\xff"),  # a byte of the command line that is no UTF-8
    ],
)
def test_tokens_and_escapes(template, rendered):
    assert MessageFormat(template).render(MESSAGE) == rendered


@pytest.mark.parametrize("template", ["%z", "50%", r"\q", "\\", r"\x4"])
def test_an_unknown_token_or_escape_is_refused_with_those_there_are(template):
    with pytest.raises(ValueError, match=r"is not an? (token|escape) of a format; known are "):
        MessageFormat(template)


def test_only_what_a_message_brings_is_changed_for_a_terminal():
    message = MESSAGE._replace(topic="a\u202eb", payload=b"\x1bc" * 2337)
    rendered = MessageFormat(r"\x1b[1m%t\x1b[0m %R %S", harmless).render(message)
    assert rendered == b"\x1b[1ma\\u202eb\x1b[0m \\x00\\x00\\x12B 4674"


RECORD = ConsumedMessage("t", 0, 7, 8, b"v", 1000, b"k\n", (("a", b"1"), ("b", None)))


def test_records_have_a_key_headers_and_a_time() -> None:
    assert MessageFormat("%k|%K|%h|%T|%o").render(RECORD) == b"k\n|2|a=1,b=NULL|1000|7"
    assert json.loads(json_line(RECORD)) == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "next_offset": 8,
        "time_ms": 1000,
        "key": "k\n",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
        "payload": "v",
    }


def test_a_tombstone_has_no_payload() -> None:
    tombstone = RECORD._replace(payload=None, key=b"\xff", headers=())
    assert MessageFormat("%s|%S|%R").render(tombstone) == b"|-1|\xff\xff\xff\xff"
    shown = json.loads(json_line(tombstone))
    assert (shown["payload"], shown["key_base64"], "headers" in shown) == (None, "/w==", False)


def test_records_are_placed_by_their_own_offsets() -> None:
    kept = [Record(3, 5, b"k", b"a"), Record(9, -1, None, None)]
    records = list(RecordSet(encode_batch(kept), 2))
    first, second = consumed_messages(Chunk("t", 0, 2, records))
    assert (first.offset, first.next_offset, first.time_ms, first.key) == (3, 4, 5, b"k")
    assert (second.offset, second.next_offset, second.time_ms, second.payload) == (9, 10, -1, None)
    lines = choose_renderer(None, False).render(Chunk("t", 0, 2, records))
    assert lines == b"a\n\n"
