"""Letters in headers: what is written comes back, and nothing that headers hold does harm."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.client.retrying import Letter
from hermes.client.retrying.letter_headers import letter_record, own_headers, read_letter

OWN = (("source", b"shop"), ("source", None), ("", b"\xff"))
LETTER = Letter("billing", "orders", 0, 3, 4711, 2, 1000, 2000, "no", b"v", b"k", OWN, -1)

# As docs/message-format.md names them.
GOLDEN = (
    *OWN,
    ("hermes-letter", b"1"),
    ("hermes-group", b"billing"),
    ("hermes-topic", b"orders"),
    ("hermes-reason", b"no"),
    ("hermes-partition", b"3"),
    ("hermes-offset", b"4711"),
    ("hermes-attempts", b"2"),
    ("hermes-first-failed-ms", b"1000"),
    ("hermes-failed-ms", b"2000"),
    ("hermes-broker", b"0"),
    ("hermes-timestamp-ms", b"-1"),
)

NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = TEXTS.filter(lambda name: not name.startswith("hermes-"))


def test_a_letter_is_the_record_with_more_headers() -> None:
    assert letter_record(LETTER) == (b"v", GOLDEN, None)
    assert read_letter(b"v", b"k", GOLDEN) == LETTER


@given(
    st.builds(
        Letter,
        group=TEXTS,
        topic=st.sampled_from(["orders", "ö", "a b"]),
        broker=st.none() | NUMBERS,
        partition=NUMBERS,
        offset=NUMBERS,
        attempts=NUMBERS,
        first_failed_ms=NUMBERS,
        failed_ms=NUMBERS,
        reason=TEXTS,
        payload=st.none() | st.binary(),
        key=st.none() | st.binary(),
        headers=st.lists(st.tuples(NAMES, st.none() | st.binary())).map(tuple),
        timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    )
)
def test_what_is_written_comes_back(letter: Letter) -> None:
    record = letter_record(letter)
    assert read_letter(record.value, letter.key, record.headers) == letter


def test_a_line_before_a_value_is_read_as_well() -> None:
    assert read_letter(LETTER.encode(), b"of the router", OWN) == LETTER
    unknown = replace(LETTER, broker=None)
    assert read_letter(unknown.encode(), None, ()) == unknown


def test_a_second_failure_replaces_the_headers_of_the_first() -> None:
    again = letter_record(replace(LETTER, headers=GOLDEN, attempts=3)).headers
    assert [name for name, _ in again] == [name for name, _ in GOLDEN]
    assert dict(again)["hermes-attempts"] == b"3"
    assert own_headers(again) == OWN


def test_of_a_name_that_occurs_twice_the_last_one_counts() -> None:
    forged = (("hermes-attempts", b"9"), ("hermes-topic", b"../etc"))
    assert read_letter(b"v", b"k", (*forged, *GOLDEN)) == LETTER


def test_what_is_no_text_is_kept_readable() -> None:
    record = letter_record(replace(LETTER, reason="a\ud800b\nc"))
    assert read_letter(b"v", b"k", record.headers) == replace(LETTER, reason="a\\ud800b\nc")


def test_a_long_reason_is_cut() -> None:
    headers = (*GOLDEN, ("hermes-reason", b"x" * 1_000_000))
    found = read_letter(b"v", b"k", headers)
    assert found is not None
    assert found.reason == "x" * 1000


HOSTILE = [
    None, b"", b"-", b"--1", b"-1", b"+1", b" 1", b"1_0", b"1e3", b"0x1", "\u0661".encode(),
    b"\xff", b"9" * 100_000, str(2**63).encode(), b"1\x00",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "name", ["partition", "offset", "attempts", "first-failed-ms", "failed-ms", "broker"]
)
def test_a_number_that_is_none_makes_no_letter(name: str, value: bytes | None) -> None:
    headers = (*GOLDEN, (f"hermes-{name}", value))
    if name == "broker" and value is None:  # the same as none
        return
    assert read_letter(b"v", b"k", headers) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", b"../etc"),
        ("topic", b""),
        ("topic", b"\xff"),
        ("topic", b"x" * 256),
        ("topic", None),
        ("group", b"\xff"),
        ("group", None),
        ("letter", b"2"),
        ("letter", None),
        ("timestamp-ms", b"9223372036854775808"),
        ("timestamp-ms", b"1.5"),
    ],
)
def test_what_is_wrong_makes_no_letter(name: str, value: bytes | None) -> None:
    assert read_letter(b"v", b"k", (*GOLDEN, (f"hermes-{name}", value))) is None


@pytest.mark.parametrize("missing", range(len(OWN), len(GOLDEN) - 2))
def test_what_is_missing_makes_no_letter(missing: int) -> None:
    assert read_letter(b"v", b"k", GOLDEN[:missing] + GOLDEN[missing + 1 :]) is None
