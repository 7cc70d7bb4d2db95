"""The way on behind a damaged message: each piece of evidence by itself."""

import pytest

from hermes.protocol import Codec, encode_message, encode_message_set
from hermes.protocol.damage import next_good, next_valid, resume_after, resume_beyond, valid_length

FIRST, SECOND, THIRD = (encode_message(text * 30) for text in (b"a", b"b", b"c"))
NESTED = encode_message_set([b"in plain sight"] * 3, Codec.SNAPPY)
LIMIT = 1000


class Segment:
    """A segment in memory."""

    def __init__(self, *parts: bytes) -> None:
        self.data = b"".join(parts)
        self.end = len(self.data)
        self.credit = 1_000_000

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : min(offset + length, self.end)]


def resized(message: bytes, by: int) -> bytes:
    return (int.from_bytes(message[:4], "big") + by).to_bytes(4, "big") + message[4:]


def scratched(message: bytes) -> bytes:
    return message[:-1] + b"?"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((resized(FIRST, 7), SECOND), len(FIRST)),  # its CRC fits up to the second
        ((resized(FIRST, 7),), None),  # or up to the end
        ((scratched(FIRST), SECOND), len(FIRST)),  # its size leads there
        ((scratched(FIRST), scratched(SECOND), THIRD), len(FIRST + SECOND)),  # in two steps
        ((scratched(NESTED), SECOND), len(NESTED)),  # never into a payload
        ((FIRST[:-1],), None),  # torn
        ((FIRST[:3],), None),
        ((b"\xff" * 50, SECOND), 50),  # nothing is to be believed
        ((b"\xff" * 50,), None),
    ],
)
def test_in_a_segment(parts: tuple[bytes, ...], expected: int | None) -> None:
    segment = Segment(*parts)
    assert next_valid(segment, 0, LIMIT) == expected
    if expected is not None:
        assert valid_length(segment, 0) == 0
        assert valid_length(segment, expected) == len(segment.data) - expected


def test_in_a_set_a_message_that_reaches_beyond_it_is_incomplete_unless_that_is_disproved() -> None:
    assert resume_beyond(FIRST[:-1], 0) == (False, None)
    assert resume_beyond(SECOND + FIRST[:-1], len(SECOND)) == (False, None)
    assert resume_beyond(resized(FIRST, 100) + SECOND, 0) == (True, len(FIRST))
    unknown = b"\x00\x00\x03\xe8\x07" + FIRST[5:]
    assert resume_beyond(unknown + SECOND, 0) == (True, len(FIRST))
    assert resume_beyond(unknown, 0) == (True, None)


def test_in_a_set_the_size_of_a_damaged_message_is_believed_as_far_as_it_leads_somewhere() -> None:
    assert resume_after(scratched(FIRST) + SECOND, 0, len(FIRST)) == len(FIRST)
    assert resume_after(scratched(FIRST), 0, len(FIRST)) == len(FIRST)
    assert resume_after(FIRST, 0, len(FIRST)) == len(FIRST)  # only its contents are damaged
    assert resume_after(scratched(FIRST) + b"\xff" * 20, 0, len(FIRST)) is None


def test_the_next_good_message_is_never_the_one_at_the_start() -> None:
    assert next_good(FIRST + SECOND) == len(FIRST)
    assert next_good(FIRST) is None
    assert next_good(b"") is None
