from random import Random

import pytest

from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.place_options import BEGINNING, END, PartitionPlace
from hermes.cli.start_positions import Position, find_position
from hermes.cli.topic_source import TopicSource
from hermes.errors import ClientError
from hermes.protocol import Codec, encode_message_set

DATA = encode_message_set([b"one", b"two", b"three"])


@pytest.fixture
def find(fake_consumer):
    """Finds the position for a start in a log of one partition."""

    def find_in(segments, start, *, hermes=True):
        consumer = fake_consumer({("t", 0): segments}, hermes=hermes)
        source = TopicSource(consumer, "t")
        available = source.ranges()[0][0]
        position = find_position(source, 0, available, start)
        return position, consumer, source, available.end

    return find_in


def test_the_ends(find):
    assert find({100: DATA}, BEGINNING)[0] == Position(100)
    assert find({100: DATA}, END)[0] == Position(100 + len(DATA))
    assert find({100: DATA}, PartitionPlace("last", 0))[0] == Position(100 + len(DATA))


@pytest.mark.parametrize("offset", [100, 113, 100 + len(DATA)])
def test_an_offset_that_is_there_is_taken_as_it_is(find, offset):
    assert find({100: DATA}, PartitionPlace("offset", offset))[0] == Position(offset)


@pytest.mark.parametrize("offset", [0, 99, 101 + len(DATA)])
def test_an_offset_that_is_not_there_is_refused_with_those_that_are(find, offset):
    with pytest.raises(ClientError, match=f"offset {offset} is not available: it holds 100 to 141"):
        find({100: DATA}, PartitionPlace("offset", offset))


def test_a_time_asks_for_what_was_appended_before_it(fake_consumer):
    asked = []

    class Timed(fake_consumer):
        def get_offsets_before(self, topic, partition, time, max_offsets=1):
            if time < 0:
                return super().get_offsets_before(topic, partition, time, max_offsets)
            asked.append(time)
            return {1999: [113], 0: [], 4999: [50]}[time]

    consumer = Timed({("t", 0): {100: DATA}})
    source = TopicSource(consumer, "t")
    available = source.ranges()[0][0]
    positions = [
        find_position(source, 0, available, PartitionPlace("time", time_ms))
        for time_ms in (2000, 1, 0, 5000)
    ]
    # The last one: retention has deleted what was there at that time.
    assert positions == [Position(113), Position(100), Position(100), Position(100)]
    assert asked == [1999, 0, 0, 4999]


def random_log(random):
    """Segments of sets of every codec, and the payloads in them."""
    segments, payloads, base = {}, [], random.randrange(1000)
    for _ in range(random.randint(1, 5)):
        data = b""
        for _ in range(random.randint(0, 12)):
            count = random.choice([0, 1, 2, 3, 20])
            batch = [
                b"%d" % (len(payloads) + n) + b"." * random.choice([0, 9, 2000])
                for n in range(count)
            ]
            data += encode_message_set(batch, random.choice([*Codec]))
            payloads += batch
        segments[base] = data
        base += len(data)
    return segments, payloads


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("hermes", [True, False])
def test_the_last_n_messages_are_exactly_those(find, seed, hermes):
    random = Random(seed)
    segments, payloads = random_log(random)
    for count in {1, 2, 3, len(payloads) // 2 + 1, len(payloads) or 1, len(payloads) + 5}:
        position, _, source, end = find(segments, PartitionPlace("last", count), hermes=hermes)
        reader = PartitionReader(source, 0, position.offset, end=end, drop=position.drop)
        found = [
            message.payload
            for chunk in read_partitions(source.consumer, [reader], max_wait_ms=0)
            for message, _ in chunk.messages
        ]
        assert found == payloads[-count:]


def test_the_last_few_of_a_large_log_do_not_read_all_of_it(find):
    log = encode_message_set([b"%0200d" % number for number in range(20_000)])
    position, consumer, _, end = find({0: log}, PartitionPlace("last", 10))
    assert position == Position(end - 10 * 210)
    assert consumer.fetched_bytes < len(log) / 20


def test_damaged_messages_do_not_count(find):
    changed = bytearray(DATA)
    changed[20] ^= 1
    assert find({0: bytes(changed)}, PartitionPlace("last", 1))[0] == Position(26)
    assert find({0: bytes(changed)}, PartitionPlace("last", 2))[0] == Position(0)
