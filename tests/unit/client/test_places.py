import pytest

from hermes.client.places import (
    BEGINNING,
    END,
    PartitionPlace,
    parse_reset_position,
    parse_start,
    parse_time_ms,
)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("0", PartitionPlace("offset", 0)),
        ("1234", PartitionPlace("offset", 1234)),
        ("-5", PartitionPlace("last", 5)),
        ("-0", PartitionPlace("last", 0)),
        ("@1431857103000", PartitionPlace("time", 1431857103000)),
        ("@2015-05-17T10:05:03Z", PartitionPlace("time", 1431857103000)),
        (str(2**63 - 1), PartitionPlace("offset", 2**63 - 1)),
    ],
)
def test_every_kind_of_start(text, start):
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "-", "--5", "1.5", "start", "End", str(2**63), "+5"])
def test_anything_else_names_what_there_is(text):
    with pytest.raises(ValueError, match=r"expected beginning, end, an offset, -N .* or @TIME"):
        parse_start(text)


def test_a_bad_time_says_what_a_time_is():
    with pytest.raises(ValueError, match="'noon' is not a point in time"):
        parse_start("@noon")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", BEGINNING),
        ("latest", END),
        ("@2015-05-17T10:05:03Z", PartitionPlace("time", 1431857103000)),
        ("17", PartitionPlace("offset", 17)),
        ("+17", PartitionPlace("shift", 17)),
        ("-17", PartitionPlace("shift", -17)),
    ],
)
def test_every_kind_of_reset_position(text, place):
    assert parse_reset_position(text) == place


@pytest.mark.parametrize("text", ["", "+", "--5", "1.5", "beginning", "٣"])
def test_anything_else_names_where_a_group_can_be_moved(text):
    with pytest.raises(ValueError, match=r"expected earliest, latest, @TIME, an offset, \+N or -N"):
        parse_reset_position(text)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1431857103000", 1431857103000),
        ("20150517", 20150517),  # digits are milliseconds, never a date
        ("2015-05-17T10:05:03Z", 1431857103000),
        ("2015-05-17T10:05:03", 1431857103000),
        ("2015-05-17 10:05:03", 1431857103000),
        ("2015-05-17T12:05:03+02:00", 1431857103000),
        ("2015-05-17T10:05:03.250Z", 1431857103250),
        ("2015-05-17", 1431820800000),
        ("2015-W20-7", 1431820800000),
    ],
)
def test_a_time_is_read(text, time_ms):
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "2015-13-01", "1969-12-31", "١٢"])
def test_anything_else_says_what_is_expected(text):
    with pytest.raises(ValueError, match=r"expected ISO 8601 such as .*, or milliseconds"):
        parse_time_ms(text)
