"""Letters: what is written comes back, and what is none is none."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.client.retrying import Letter, parse_letter
from hermes.client.retrying.letters import reason_of
from hermes.errors import MessageTooLargeError

LETTER = Letter("billing", "orders", 0, 3, 4711, 2, 1000, 2000, "ValueError: no", b"\x00pay\nload")

# As docs/message-format.md shows it.
GOLDEN = (
    b'{"hermes_letter":1,"group":"billing","topic":"orders","broker":0,"partition":3,'
    b'"offset":4711,"attempts":2,"first_failed_ms":1000,"failed_ms":2000,'
    b'"reason":"ValueError: no"}\n\x00pay\nload'
)

NUMBERS = st.integers(0, 2**63 - 1)


def test_a_letter_is_a_line_of_json_and_the_payload() -> None:
    assert LETTER.encode() == GOLDEN
    assert parse_letter(GOLDEN) == LETTER


@given(
    st.builds(
        Letter,
        group=st.text(),
        topic=st.sampled_from(["orders", "ö", "a b"]),
        broker=st.none() | NUMBERS,
        partition=NUMBERS,
        offset=NUMBERS,
        attempts=NUMBERS,
        first_failed_ms=NUMBERS,
        failed_ms=NUMBERS,
        reason=st.text(st.characters()),
        payload=st.none() | st.binary(),
        key=st.none() | st.binary(),
        headers=st.lists(st.tuples(st.text(st.characters()), st.none() | st.binary())).map(tuple),
        timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    )
)
def test_what_is_written_comes_back(letter: Letter) -> None:
    assert parse_letter(letter.encode()) == letter


RECORD = replace(LETTER, key=b"k\xff", headers=(("from", b"shop"), ("from", None)), timestamp_ms=-1)

RECORD_GOLDEN = GOLDEN.replace(
    b"}\n",
    b',"key":"a/8=","headers":[["from","c2hvcA=="],["from",null]],"timestamp_ms":-1}\n',
)


def test_what_a_record_has_beside_its_value_is_in_the_line() -> None:
    assert RECORD.encode() == RECORD_GOLDEN
    assert parse_letter(RECORD_GOLDEN) == RECORD


def test_a_key_and_headers_as_large_as_a_batch_may_be_come_back() -> None:
    large = replace(LETTER, key=b"k" * 500_000, headers=(("name", b"v" * 500_000),))
    assert parse_letter(large.encode()) == large
    with pytest.raises(MessageTooLargeError):
        replace(LETTER, key=b"k" * 2_000_000).encode()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b'"a/8="', b'"a/8"'),
        (b'"a/8="', b'"a /8="'),
        (b'"a/8="', '"ä"'.encode()),
        (b'"a/8="', b"7"),
        (b'["from",null]', b'["from"]'),
        (b'["from",null]', b"[null,null]"),
        (b'["from",null]', b'"ab"'),
        (b'[["from","c2hvcA=="],["from",null]]', b"7"),
        (b'"timestamp_ms":-1', b'"timestamp_ms":9223372036854775808'),
        (b'"timestamp_ms":-1', b'"timestamp_ms":1.5'),
    ],
)
def test_what_is_wrong_beside_the_value_makes_no_letter(right: bytes, wrong: bytes) -> None:
    assert right in RECORD_GOLDEN
    assert parse_letter(RECORD_GOLDEN.replace(right, wrong)) is None


def test_fields_of_later_versions_are_ignored() -> None:
    assert parse_letter(GOLDEN.replace(b',"group"', b',"colour":[{}],"group"', 1)) == LETTER


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b'{"hermes_letter":1}\n',
        b'{"hermes_letter":1,',
        b'{"hermes_letter":1,' + b"[" * 60_000 + b"\n",
        b'{"hermes_letter":1,"group":"' + b"x" * 100_000 + b'"}\n',
        GOLDEN.replace(b"letter", b"lettre"),
        GOLDEN.replace(b":3,", b":-3,"),
        GOLDEN.replace(b":3,", b":true,"),
        GOLDEN.replace(b":3,", b":1e3,"),
        GOLDEN.replace(b":3,", b":9223372036854775808,"),
        GOLDEN.replace(b":3,", b":" + b"9" * 5000 + b","),
        GOLDEN.replace(b'"orders"', b'"../etc"'),
        GOLDEN.replace(b'"orders"', b'""'),
        GOLDEN.replace(b'"orders"', b"7"),
        GOLDEN.replace(b'"billing"', b"null"),
        GOLDEN.replace(b"billing", b"\xff"),
        *(GOLDEN[:end] for end in range(GOLDEN.index(b"\n") + 1)),
    ],
)
def test_what_is_no_letter(payload: bytes) -> None:
    assert parse_letter(payload) is None


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no"), "ValueError: no"),
        (KeyError(), "KeyError"),
        (_SilentError(), "_SilentError"),
        (ValueError("x" * 2000), "ValueError: " + "x" * 985 + "..."),
    ],
)
def test_a_reason_names_the_exception(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
    assert len(reason) <= 1000


def test_a_letter_is_one_line_whatever_the_reason() -> None:
    encoded = Letter("g", "t", 0, 0, 0, 1, 0, 0, 'a\nb"c\ud800', b"p").encode()
    line, _, payload = encoded.partition(b"\n")
    assert (json.loads(line)["reason"], payload) == ('a\nb"c\ud800', b"p")
