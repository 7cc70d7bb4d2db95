"""Offsets of a source and of the partition that mirrors it, translated by spans."""

import pytest

from hermes.client.translation import SourceMap, translate
from hermes.protocol import SourceFlags, SourceSpan

V = int(SourceFlags.VERBATIM)
A, B, OTHER = "u/t/0-0", "u/t/0-1", "w/t/0-0"

# A: 100 to 200 verbatim at 0, 250 to 300 filtered at 150; B: 0 to 50 verbatim at 100.
MAP = SourceMap(
    3,
    earliest=0,
    end=170,
    positions={A: 320, B: 50},
    spans=[
        (A, [SourceSpan(0, V, 100, 200, 0, 100), SourceSpan(0, 0, 250, 300, 150, 170)]),
        (B, [SourceSpan(1, V, 0, 50, 100, 150)]),
    ],
)


@pytest.mark.parametrize(
    ("source", "offset", "expected"),
    [
        (A, 0, 0),  # before all that is here
        (A, 100, 0),
        (A, 130, 30),
        (A, 200, 150),  # in a gap: what follows
        (A, 249, 150),
        (A, 250, 150),
        (A, 299, 150),  # somewhere in a filtered range
        (A, 300, 170),  # nothing of 300 to 320 was for this partition
        (A, 320, 170),
        (A, 999, 170),
        (B, 10, 110),
        (B, 50, 170),
        (OTHER, 5, 170),
    ],
)
def test_to_the_target(source: str, offset: int, expected: int) -> None:
    assert MAP.to_target(source, offset) == expected


def test_what_retention_has_taken_is_not_led_to() -> None:
    spans = [(A, [SourceSpan(0, V, 100, 200, 0, 100)])]
    trimmed = SourceMap(0, 40, 100, {A: 200}, spans)
    assert trimmed.to_target(A, 110) == 40
    assert trimmed.to_target(A, 150) == 50
    assert SourceMap(0, 100, 100, {A: 200}, [(A, [])]).to_target(A, 110) == 100


def test_a_reader_of_several_sources_begins_where_the_first_asks_for() -> None:
    assert translate(MAP, {A: 130, B: 20}) == (30, (), ())
    assert translate(MAP, {A: 320, B: 20}) == (120, (), ())
    assert translate(MAP, {A: 400, B: 50}) == (170, (), (A,))
    assert translate(MAP, {A: 320}) == (100, (B,), ())
    assert translate(MAP, {OTHER: 5}) is None
    assert translate(SourceMap(0, 0, 0, {}, []), {A: 5}) is None
