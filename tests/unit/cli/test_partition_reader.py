import pytest

from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.topic_source import OffsetRange, TopicSource
from hermes.client import FetchResult
from hermes.errors import ClientError, MessageLargerThanFetchError
from hermes.protocol import Codec, MessageSet, RecordSet, encode_message, encode_message_set
from hermes.protocol.records import Record, encode_batch

FIRST = encode_message_set([b"a", b"bb", b"ccc"])
WRAPPED = encode_message_set([b"d", b"e", b"f"], Codec.GZIP)


def source_of(consumer, partition=None):
    return TopicSource(consumer, "t", partition)


def read(consumer, readers):
    return [
        (chunk.partition, chunk.offset, [message.payload for message, _ in chunk.messages])
        for chunk in read_partitions(consumer, readers, max_wait_ms=0)
    ]


def payloads(consumer, **settings):
    segments = consumer.logs["t", 0]
    settings.setdefault("offset", min(segments))
    end = max(base + len(data) for base, data in segments.items())
    reader = PartitionReader(source_of(consumer), 0, **{"end": end, **settings})
    return [payload for _, _, found in read(consumer, [reader]) for payload in found], reader


@pytest.fixture
def consumer_of(fake_consumer):
    """A consumer of one partition with these segments."""

    def make(*segments, earliest=0, **settings):
        log, base = {}, earliest
        for data in segments:
            log[base] = data
            base += len(data)
        return fake_consumer({("t", 0): log}, **settings)

    return make


def test_segments_are_read_one_after_the_other(consumer_of):
    consumer = consumer_of(FIRST, WRAPPED, FIRST, earliest=1000)
    assert payloads(consumer)[0] == [b"a", b"bb", b"ccc", b"d", b"e", b"f", b"a", b"bb", b"ccc"]


def test_a_chunk_knows_where_it_starts(consumer_of):
    consumer = consumer_of(FIRST, WRAPPED)
    reader = PartitionReader(source_of(consumer), 0, 11, end=len(FIRST + WRAPPED))
    assert read(consumer, [reader]) == [
        (0, 11, [b"bb", b"ccc"]),
        (0, len(FIRST), [b"d", b"e", b"f"]),
    ]


def test_what_was_appended_after_the_wanted_end_is_left_out(consumer_of):
    consumer = consumer_of(FIRST + WRAPPED)
    assert payloads(consumer, end=11)[0] == [b"a"]
    assert payloads(consumer, end=len(FIRST))[0] == [b"a", b"bb", b"ccc"]
    assert payloads(consumer, end=0)[0] == []


def test_a_record_behind_a_gap_is_beyond_an_end_in_the_gap(consumer_of):
    """Compaction leaves gaps, and so do the markers of transactions."""
    batches = encode_batch([Record(3, 1, None, b"a")]) + encode_batch([Record(8, 1, None, b"b")])
    for end, expected in [(3, []), (4, [b"a"]), (5, [b"a"]), (8, [b"a"]), (9, [b"a", b"b"])]:
        reader = PartitionReader(source_of(consumer_of(b"")), 0, 0, end=end)
        chunk = reader.take(FetchResult(reader.request(1000), RecordSet(batches, 0), 9))
        assert [message.payload for message, _ in chunk.messages] == expected, end
        assert reader.is_done


def test_messages_can_be_dropped_to_begin_within_a_compressed_set(consumer_of):
    consumer = consumer_of(FIRST + WRAPPED)
    reader = PartitionReader(source_of(consumer), 0, len(FIRST), end=len(FIRST + WRAPPED), drop=2)
    assert read(consumer, [reader]) == [(0, len(FIRST), [b"f"])]


def test_an_empty_compressed_set_does_not_stop_the_reader(consumer_of):
    assert payloads(consumer_of(encode_message_set([], Codec.GZIP) + FIRST))[0] == [
        b"a",
        b"bb",
        b"ccc",
    ]


def test_partitions_are_read_side_by_side_each_to_its_end(fake_consumer):
    logs = {("t", 0): {0: FIRST * 3}, ("t", 2): {0: WRAPPED}}
    consumer = fake_consumer(logs, partition_count=3)
    source = source_of(consumer)
    ranges, _ = source.ranges()
    readers = [
        PartitionReader(source, n, each.earliest, end=each.end) for n, each in ranges.items()
    ]
    assert read(consumer, readers) == [
        (0, 0, [b"a", b"bb", b"ccc"] * 3),
        (2, 0, [b"d", b"e", b"f"]),
    ]


# -- damage -------------------------------------------------------------------------------------


def damaged(data, position):
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def test_damage_ends_the_reading_after_the_messages_before_it(consumer_of):
    consumer = consumer_of(damaged(FIRST, 11 + 11) + WRAPPED)
    reader = PartitionReader(source_of(consumer), 0, 0, end=len(FIRST + WRAPPED))
    chunks = read_partitions(consumer, [reader], max_wait_ms=0)
    assert [message.payload for message, _ in next(chunks).messages] == [b"a"]
    with pytest.raises(ClientError) as caught:
        next(chunks)
    text = str(caught.value)
    assert text.startswith("topic 't' partition 0: no good message starts at offset 11: ")
    assert text.endswith("; the next one starts at 23, where --skip-corrupt would continue")


def test_damage_is_skipped_and_counted_when_wished(consumer_of, capsys):
    consumer = consumer_of(damaged(FIRST, 11 + 11) + damaged(WRAPPED, 20), FIRST)
    found, reader = payloads(consumer, skip_corrupt=True)
    assert found == [b"a", b"ccc", b"a", b"bb", b"ccc"]
    assert reader.skipped == 2
    end = len(FIRST + WRAPPED)
    assert capsys.readouterr().err == (
        "hermes: topic 't' partition 0: skipped damage from offset 11 to 23\n"
        f"hermes: topic 't' partition 0: skipped damage from offset {len(FIRST)} to {end}\n"
    )


def test_damage_up_to_the_end_of_a_segment_leads_to_the_next_one(consumer_of):
    nonsense = b"\xff" * 50
    consumer = consumer_of(FIRST + nonsense, FIRST)
    found, reader = payloads(consumer, skip_corrupt=True)
    assert found == [b"a", b"bb", b"ccc"] * 2
    assert reader.skipped == 1


def test_damage_at_the_very_end_is_the_end(consumer_of):
    consumer = consumer_of(FIRST + b"\xff" * 50)
    assert payloads(consumer, skip_corrupt=True)[0] == [b"a", b"bb", b"ccc"]


def test_an_offset_within_a_message_is_told_from_damage(consumer_of):
    with pytest.raises(ClientError, match="offset 13: it is within what starts at 11; the next"):
        payloads(consumer_of(FIRST), offset=13)


def test_a_bomb_is_never_skipped_and_names_the_option(consumer_of):
    consumer = consumer_of(FIRST)
    reader = PartitionReader(source_of(consumer), 0, 0, skip_corrupt=True)
    bomb = encode_message_set([b"z" * 100_000], Codec.GZIP)
    result = FetchResult(reader.request(1), MessageSet(bomb, max_expanded_bytes=1000))
    with pytest.raises(ClientError, match=r"expand to more than 1000 bytes.*\(--max-expanded\)"):
        reader.take(result)


def test_a_message_that_is_too_large_names_the_option(consumer_of):
    reader = PartitionReader(source_of(consumer_of(FIRST)), 0, 0)
    error = MessageLargerThanFetchError("too large", offset=0)
    with pytest.raises(ClientError, match=r"too large \(--max-fetch\)"):
        reader.take(FetchResult(reader.request(1), MessageSet(b""), error=error))


# -- what can happen meanwhile ------------------------------------------------------------------


def test_retention_that_overtakes_the_reader_is_told_with_what_is_left(consumer_of):
    with pytest.raises(ClientError, match="offset 5 is not available: it holds 1000 to 1036"):
        payloads(consumer_of(FIRST, earliest=1000), offset=5)


def test_a_topic_deleted_meanwhile_ends_the_reading(fake_consumer):
    consumer = fake_consumer({})
    reader = PartitionReader(source_of(consumer), 0, 5)
    with pytest.raises(ClientError, match="was deleted while it was being read"):
        next(read_partitions(consumer, [reader], max_wait_ms=0))


def test_a_partition_not_written_yet_is_waited_for(fake_consumer):
    consumer = fake_consumer({})
    reader = PartitionReader(source_of(consumer), 0, 0)
    result = consumer.fetch_waiting([reader.request(10)], 0)[0]
    assert reader.take(result).messages == []
    assert not reader.is_done


# -- what a topic is ----------------------------------------------------------------------------


@pytest.mark.parametrize("hermes", [True, False])
def test_the_ranges_of_all_partitions_or_one(fake_consumer, hermes):
    logs = {("t", 1): {10: FIRST, 10 + len(FIRST): FIRST}}
    consumer = fake_consumer(logs, hermes=hermes, partition_count=3)
    assert source_of(consumer).ranges() == (
        {0: OffsetRange(0, 0), 1: OffsetRange(10, 10 + 2 * len(FIRST)), 2: OffsetRange(0, 0)},
        True,
    )
    assert list(source_of(consumer, 1).ranges()[0]) == [1]
    with pytest.raises(ClientError, match="no partition 3: its partitions are 0 to 2"):
        source_of(consumer, 3).ranges()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_partitions_of_a_kafka_07_are_counted_by_trying(fake_consumer, count):
    consumer = fake_consumer({}, hermes=False, partition_count=count)
    assert len(source_of(consumer).ranges()[0]) == count


def test_a_topic_that_nobody_wrote_to_does_not_exist(fake_consumer):
    for is_hermes in (True, False):
        source = source_of(fake_consumer({}, hermes=is_hermes))
        assert source.ranges() == ({0: OffsetRange(0, 0)}, False)
        assert ("can't tell" in source.missing_text()) is not is_hermes


def test_a_large_message_of_another_magic_is_read_too(consumer_of):
    consumer = consumer_of(encode_message(b"x" * 500_000, magic=0) + FIRST)
    assert [len(each) for each in payloads(consumer)[0]] == [500_000, 1, 2, 3]
