"""Records of chunks: what is shown of them, and where, when some can't be read."""

import pytest

from hermes.cli.message_formats import choose_renderer, consumed_messages
from hermes.cli.partition_reader import Chunk
from hermes.cli.record_codec import RecordDecoder
from hermes.client import Message
from hermes.errors import ClientError, EncodingError, RegistryUnavailableError
from hermes.protocol.stamps import Stamper


def read(payload: bytes) -> bytes:
    if payload.startswith(b"bad"):
        raise EncodingError("no record")
    if payload == b"later":
        raise RegistryUnavailableError("nobody there")
    return b'{"a": "%b"}' % payload


def chunk(*payloads: bytes, following: list[int] | None = None) -> Chunk:
    ends = following or [10 * (number + 1) for number in range(len(payloads))]
    pairs = [(Message((each, 1, 0, 0)), end) for each, end in zip(payloads, ends, strict=True)]
    return Chunk("t", 3, 0, pairs)


def places(decoder: RecordDecoder, *chunks: Chunk) -> list[tuple[bytes, int, int]]:
    return [
        (each.payload, each.offset, each.next_offset)
        for shown in decoder.decoded(chunks)
        for each in consumed_messages(shown)
    ]


def test_offsets_stay_what_they_are_around_what_is_skipped() -> None:
    notes: list[str] = []
    decoder = RecordDecoder(read, skip_corrupt=True, report=notes.append)
    found = places(decoder, chunk(b"bad", b"x", b"bad", b"bad", b"y"), chunk(b"bad"), chunk(b"z"))
    assert found == [(b'{"a": "x"}', 10, 20), (b'{"a": "y"}', 40, 50), (b'{"a": "z"}', 0, 10)]
    assert decoder.skipped == len(notes) == 4
    assert notes[1] == "partition 3 of topic t, message at offset 20: skipped: no record"


def test_within_a_compressed_set_all_have_the_sets_offset() -> None:
    decoder = RecordDecoder(read, skip_corrupt=True, report=lambda note: None)
    found = places(decoder, chunk(b"x", b"bad", b"y", following=[0, 0, 70]))
    assert found == [(b'{"a": "x"}', 0, 0), (b'{"a": "y"}', 0, 70)]


def test_what_came_before_is_shown_before_the_error() -> None:
    decoder = RecordDecoder(read, skip_corrupt=False)
    shown = decoder.decoded([chunk(b"x", b"bad", b"y")])
    assert next(shown).messages[0][0].payload == b'{"a": "x"}'
    with pytest.raises(ClientError, match=r"offset 10: no record \(--skip-corrupt continues"):
        next(shown)


def test_a_registry_that_is_out_of_reach_skips_nothing() -> None:
    decoder = RecordDecoder(read, skip_corrupt=True)
    with pytest.raises(RegistryUnavailableError):
        list(decoder.decoded([chunk(b"later")]))
    assert decoder.skipped == 0


def test_the_stamp_of_an_audited_producer_is_taken_off() -> None:
    (stamped,) = Stamper(1, "host").stamped([b"x"], 0)
    decoder = RecordDecoder(read, skip_corrupt=False)
    assert places(decoder, chunk(stamped))[0][0] == b'{"a": "x"}'


def test_values_are_within_the_objects() -> None:
    (shown,) = RecordDecoder(read, skip_corrupt=False).decoded([chunk(b"x")])
    line = choose_renderer(None, True, has_values=True).render(shown)
    assert line == (
        b'{"topic": "t", "partition": 3, "offset": 0, "next_offset": 10, "value": {"a": "x"}}\n'
    )
