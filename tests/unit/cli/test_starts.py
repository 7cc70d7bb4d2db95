import pytest

from hermes.cli.starts import AtOffset, AtTime, Beginning, End, Last, parse_start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("-5", Last(5)),
        ("-0", Last(0)),
        ("@1431857103000", AtTime(1431857103000)),
        ("@2015-05-17T10:05:03Z", AtTime(1431857103000)),
        (str(2**63 - 1), AtOffset(2**63 - 1)),
    ],
)
def test_every_kind_of_start(text, start):
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "-", "--5", "1.5", "start", "End", str(2**63), "+5"])
def test_anything_else_names_what_there_is(text):
    with pytest.raises(ValueError, match=r"expected beginning, end, an offset, -N .* or @TIME"):
        parse_start(text)


def test_a_bad_time_says_what_a_time_is():
    with pytest.raises(ValueError, match="'noon' is no point in time"):
        parse_start("@noon")
