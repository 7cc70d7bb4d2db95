import pytest

from hermes.cli.times import format_time_ms, parse_time_ms


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


def test_a_time_is_written_in_utc_to_the_millisecond():
    assert format_time_ms(1431857103007) == "2015-05-17T10:05:03.007Z"
    assert parse_time_ms(format_time_ms(1431857103007)) == 1431857103007
    assert format_time_ms(2**62) == str(2**62)
