from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from hermes.coordination.layout import (
    BrokerPartition,
    Subscription,
    assign_topic,
    format_broker,
    format_number,
    format_subscription,
    parse_broker,
    parse_number,
    parse_subscription,
)
from hermes.errors import InvalidNodeError

names = st.text("abcXYZ019._-", min_size=1, max_size=12)
counts = st.dictionaries(st.integers(0, 20), st.integers(0, 12), max_size=6)


@given(names, st.integers(1, 65535), st.integers(0, 1 << 50))
def test_a_broker_is_read_as_it_was_written(host: str, port: int, now_ms: int) -> None:
    assert parse_broker("/x", format_broker(host, port, now_ms))[1:] == (host, port)


@given(st.dictionaries(names, st.integers(0, 100), max_size=5))
def test_streams_are_read_as_they_were_written(streams: dict[str, int]) -> None:
    assert parse_subscription("/x", format_subscription(Subscription(streams))).streams == streams


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    assert parse_number("/x", format_number(number)) == number


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    for read in (parse_broker, parse_number, parse_subscription):
        with suppress(InvalidNodeError):  # anything else fails the test
            read("/x", value)


@given(counts, st.sets(names, min_size=1, max_size=8))
def test_every_partition_has_one_owner_and_shares_differ_by_one(
    brokers: dict[int, int], streams: set[str]
) -> None:
    partitions = {BrokerPartition(b, p) for b, count in brokers.items() for p in range(count)}
    assigned = assign_topic(partitions, streams)
    assert assigned.keys() == partitions
    assert set(assigned.values()) <= streams
    shares = [list(assigned.values()).count(stream) for stream in sorted(streams)]
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)
