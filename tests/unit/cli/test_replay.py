import json
import os
from contextlib import nullcontext
from errno import EIO
from types import SimpleNamespace

import pytest
from storage_logs import NOW_MS, append, message, open_log, settings

from hermes.cli.options import BrokerOption
from hermes.cli.partition_reader import PartitionReader, read_partitions
from hermes.cli.stored_topics import StoredTopics
from hermes.cli.topic_source import TopicSource
from hermes.client import SendResult
from hermes.client.rate_pacing import Pace
from hermes.client.retrying import Letter
from hermes.protocol import (
    Codec,
    MessageSet,
    MetadataRequest,
    RecordSet,
    TopicMetadata,
    encode_message_set,
)
from hermes.storage import FileLayer


class FakeProducer:
    """Takes what is sent, by partition; has topics of two partitions, or some of Kafka's format.

    Args:
        own: the numbers that it has of a topic of Kafka's format.
    """

    address = "127.0.0.1:1"

    def __init__(self, own=()):
        self.sent = {}
        partitions = tuple(SimpleNamespace(partition=each) for each in own)
        described = TopicMetadata("orders", 0, 2 * len(own) or 2, partitions, bool(own))
        answer = SimpleNamespace(topics=(described,), max_message_bytes=1000, version="1")

        def run(conversation):
            try:
                next(conversation)
            except StopIteration as told:  # nothing had to be asked
                return told.value
            return answer

        self.channel = SimpleNamespace(versions=lambda: {MetadataRequest.TYPE}, run=run)

    def can_acknowledge(self):
        return False

    def send(self, topic, partition, encoded):
        found = self.sent.setdefault((topic, partition), [])
        found += [each.payload for each, _ in MessageSet(bytes(encoded), 0).iterate(deep=True)]

    def send_records(self, requests, acks):
        for each in requests:
            found = self.sent.setdefault((each.topic, each.partition), [])
            found += [record.payload for record, _ in RecordSet(bytes(each.message_set), 0)]
        return [SendResult("orders", 0, 0)] * len(requests)

    def send_acknowledged(self, requests, acks):
        raise AssertionError("without acknowledgements only records are answered")

    def barrier(self):
        pass


@pytest.fixture
def data(tmp_path):
    """A data directory with segments of two partitions; a message takes 13 bytes."""
    for number, count in ((0, 20), (1, 5)):
        directory = tmp_path / "data" / f"clicks-{number}"
        directory.parent.mkdir(exist_ok=True)
        log = open_log(directory, log_settings=settings(segment_bytes=100))
        for each in range(count):
            append(log, message(f"m{each:02}"), now_ms=NOW_MS + each * 1000)
        log.flush()
        log.close()
    return tmp_path / "data"


@pytest.fixture
def replay(run, monkeypatch, data):
    """Replays the directory: (the result, what was sent)."""

    def invoke(*arguments, code=0):
        producer = FakeProducer()
        monkeypatch.setattr(BrokerOption, "producer", lambda *_: nullcontext(producer))
        line = ["replay", "-b", "127.0.0.1:1", "-t", "clicks", "--to", "again", "--acks", "none"]
        result = run(*line, "--log-dir", data, *arguments)
        assert result.exit_code == code, result.output
        return result, producer.sent

    return invoke


def names(*numbers):
    return [b"m%02d" % number for number in numbers]


def test_each_partition_goes_to_its_own(replay):
    result, sent = replay()
    assert sent == {("again", 0): names(*range(20)), ("again", 1): names(*range(5))}
    assert result.stdout == "25 messages, 75 B, copied from clicks to again\n"


def test_a_range_of_offsets(replay):
    result, sent = replay("-p", 0, "-o", 13, "--until", 130, "--json")
    assert sent == {("again", 0): names(*range(1, 10))}
    row = {"partition": 0, "from": 13, "to": 130, "messages": 9, "payload_bytes": 27}
    assert json.loads(result.stdout) == {"topic": "clicks", "to": "again", "partitions": [row]}


def test_a_range_of_times_and_one_partition_to_write_to(replay):
    _, sent = replay("-o", f"@{NOW_MS + 3000}", "--until", f"@{NOW_MS + 6000}", "--to-partition", 0)
    assert sorted(sent["again", 0]) == sorted(names(3, 4, 5, 3, 4))


def test_the_last_ones(replay):
    _, sent = replay("-o", "-3")
    assert sent == {("again", 0): names(17, 18, 19), ("again", 1): names(2, 3, 4)}


def test_damage_ends_it_and_says_where_to_go_on(replay, data):
    first = sorted((data / "clicks-0").glob("*.kafka"))[0]
    damaged = bytearray(first.read_bytes())
    damaged[13 * 4 + 11] ^= 1
    first.write_bytes(damaged)
    result, sent = replay("-p", 0, code=1)
    assert sent == {("again", 0): names(0, 1, 2, 3)}
    first, last = result.stderr.splitlines()
    assert first == "hermes: partition 0 was copied up to offset 52: continue with -p 0 -o 52"
    assert "no good message starts at offset 52" in last
    _, sent = replay("-p", 0, "--skip-corrupt")
    assert sent == {("again", 0): names(0, 1, 2, 3, *range(5, 20))}


def test_a_torn_end(replay, data):
    last = sorted((data / "clicks-0").glob("*.kafka"))[-1]
    with last.open("ab") as file:
        file.write(message("torn")[:-1])
    _, sent = replay("-p", 0, code=1)
    assert sent == {("again", 0): names(*range(20))}
    _, sent = replay("-p", 0, "--skip-corrupt")
    assert sent == {("again", 0): names(*range(20))}


def test_what_can_not_be(replay, run):
    for arguments, code, text in [
        (["--from", "127.0.0.1:2"], 2, "--from and --log-dir exclude each other"),
        (["-o", "13"], 2, "an offset belongs to one partition"),
        (["--until", "-3"], 2, "--until is end, an offset, or @TIME"),
        (["-p", "0", "-o", "99999"], 1, "offset 99999 is not available: it holds 0 to 260"),
        (["-t", "none"], 1, "there is no topic 'none'"),
    ]:
        result, _ = replay(*arguments, code=code)
        assert text in result.stderr
    same = run("replay", "-b", "127.0.0.1:1", "-t", "clicks", "--to", "clicks")
    assert (same.exit_code, "can't be copied into itself" in same.stderr) == (2, True)


def test_compressed_sets_and_large_messages_in_files(tmp_path, make_segment):
    large = encode_message_set([b"x" * 2_000_000, b"y"])
    make_segment(large)
    make_segment(encode_message_set([b"a", b"b"], Codec.GZIP), base=len(large))
    source = TopicSource(StoredTopics(tmp_path / "data"), "clicks")
    ((number, (start, end)),) = source.ranges()[0].items()
    reader = PartitionReader(source, number, start, end=end)
    chunks = read_partitions(source.consumer, [reader], 0)
    found = [each.payload for chunk in chunks for each, _ in chunk.messages]
    assert found == [b"x" * 2_000_000, b"y", b"a", b"b"]


def test_the_pace():
    now = [100.0]
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds

    pace = Pace(100, None, sleep=sleep, seconds=lambda: now[0])
    assert sum(len(piece) for piece in pace.pieces([b"x"] * 250)) == 250
    assert 2.3 <= sum(pauses) <= 2.5
    pace = Pace(None, 1000, sleep=sleep, seconds=lambda: now[0])
    pauses.clear()
    assert [len(piece) for piece in pace.pieces([b"x" * 2000, b"", b"y" * 50, b"z" * 60])] == [1, 3]
    assert sum(pauses) == pytest.approx(2.0)
    now[0] += 1000  # a pause is not made up for
    pauses.clear()
    list(pace.pieces([b"x" * 1000, b"y"]))
    assert sum(pauses) == pytest.approx(1.0)


@pytest.fixture
def dead(tmp_path):
    """A data directory with dead letters, and what is none."""

    def make(*payloads):
        log = open_log(tmp_path / "data" / "orders.g.dead-0")
        for each in payloads:
            append(log, message(each), now_ms=NOW_MS)
        log.flush()
        log.close()
        return tmp_path / "data"

    (tmp_path / "data").mkdir()
    return make


def letter(payload, partition=0, topic="orders"):
    return Letter("g", topic, 9, partition, 7, 4, 1, 2, "no", payload).encode().decode()


def replay_dead(run, monkeypatch, directory, *arguments, own=()):
    producer = FakeProducer(own)
    monkeypatch.setattr(BrokerOption, "producer", lambda *_: nullcontext(producer))
    line = ["replay", "-b", "127.0.0.1:1", "-t", "orders.g.dead", "--acks", "none"]
    return run(*line, "--log-dir", directory, *arguments), producer.sent


def test_dead_letters_go_where_they_were_published(run, monkeypatch, dead):
    letters = [letter(b"a"), letter(b"b", 1), letter(b"c", 5), letter(b"d", 0, "other")]
    directory = dead(*letters)
    result, sent = replay_dead(run, monkeypatch, directory, "--dead-letters")
    assert (
        result.stdout == "4 messages, 4 B, copied from orders.g.dead to where they were published\n"
    )
    # A fake topic has two partitions: what was in the sixth goes into the second.
    assert sent == {("orders", 0): [b"a"], ("orders", 1): [b"b", b"c"], ("other", 0): [b"d"]}
    again = ["--dead-letters", "--to", "trial", "--to-partition", 7]
    _, sent = replay_dead(run, monkeypatch, directory, *again)
    assert sent == {("trial", 7): [b"a", b"b", b"c", b"d"]}


def test_dead_letters_go_to_partitions_that_the_broker_has(run, monkeypatch, dead):
    directory = dead(letter(b"a", 3), letter(b"b", 2), letter(b"c", 1))
    _, sent = replay_dead(run, monkeypatch, directory, "--dead-letters", own=(1, 3))
    # The third partition is another broker's.
    assert sent == {("orders", 3): [b"a"], ("orders", 1): [b"b", b"c"]}


def test_what_is_no_dead_letter_is_left_out_and_shown(run, monkeypatch, dead):
    directory = dead("x\x1b", letter(b"a"), '{"hermes_letter":1,"topic":"../x"}\n', letter(b"b"))
    result, sent = replay_dead(run, monkeypatch, directory, "--dead-letters", "--json")
    assert result.exit_code == 0
    assert sent == {("orders", 0): [b"a", b"b"]}
    first, second, last = result.stderr.splitlines()
    where = "partition 0, the message that ends at offset 12"
    assert first == rf"hermes: no dead letter, left out: {where}: b'x\x1b'"
    assert 'b\'{"hermes_letter":1,"topic":"../x"}' in second
    assert last == "hermes: 2 messages were no dead letters, and left out"
    assert json.loads(result.stdout)["to"] is None


def failed(payload, reason, attempts=1, failed_ms=1000, topic="orders"):
    letter = Letter("g", topic, 9, 0, 7, attempts, 1, failed_ms, reason, payload)
    return letter.encode().decode()


CHOSEN = [
    (["--reason", "TIMEOUT"], [b"a", b"b"]),
    (["--max-attempts", 3], [b"a", b"c"]),
    (["--failed-since", "@1970-01-01T00:00:01", "--failed-until", 3000], [b"a", b"b"]),
    (["--origin", "other"], [b"d"]),
    (["--reason", "timeout", "--max-attempts", 3], [b"a"]),
]


@pytest.mark.parametrize(("options", "expected"), CHOSEN)
def test_dead_letters_are_chosen(run, monkeypatch, dead, options, expected):
    directory = dead(
        failed(b"a", "Timeout"),
        failed(b"b", "a timeout", attempts=4, failed_ms=2999),
        failed(b"c", "no", failed_ms=3000),
        failed(b"d", "x\x1b", attempts=9, failed_ms=999, topic="other"),
        "no letter",
    )
    result, sent = replay_dead(run, monkeypatch, directory, "--dead-letters", *options)
    assert [each for some in sent.values() for each in some] == expected
    assert f"{4 - len(expected)} dead letters were not chosen" in result.stderr
    preview = "--dead-letters", "--preview", *options
    result, sent = replay_dead(run, monkeypatch, directory, *preview)
    assert sent == {}
    first, *_, last = result.stdout.splitlines()
    others = 4 - len(expected)
    told = f"{len(expected)} dead letters would be copied, {others} not; 1 messages are no dead"
    assert first.startswith(told)
    assert "\x1b" not in result.stdout
    assert "such as" in last
    result, _ = replay_dead(run, monkeypatch, directory, *preview, "--json")
    found = json.loads(result.stdout)
    assert [found["chosen"], found["others"], found["no_dead_letters"]] == [
        len(expected),
        others,
        1,
    ]
    assert sum(found["reasons"].values()) == sum(found["topics"].values()) == len(expected)


def test_a_group_alone_gets_letters_as_they_are(run, monkeypatch, dead):
    whole = letter(b"a", 1)
    _, sent = replay_dead(run, monkeypatch, dead(whole), "--dead-letters", "--to-group")
    assert sent == {("orders.g.retry.1", 1): [whole.encode()]}


def test_only_dead_letters_can_be_chosen(run):
    for options in (["--reason", "x"], ["--preview"], ["--to-group"], ["--max-attempts", 1]):
        result = run("replay", "-b", "127.0.0.1:1", "-t", "t", "--to", "u", *options)
        assert (result.exit_code, "give --dead-letters" in result.stderr) == (2, True)
    line = ["replay", "-b", "127.0.0.1:1", "-t", "t", "--to", "u", "--dead-letters", "--to-group"]
    result = run(*line)
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)


def test_without_a_topic_to_write_to_nothing_is_done(run):
    result = run("replay", "-b", "127.0.0.1:1", "-t", "orders")
    assert (result.exit_code, "give --to, or --dead-letters" in result.stderr) == (2, True)


def test_what_the_disk_does_not_give_back_is_damage_that_can_be_skipped(replay, data, monkeypatch):
    lost, *_ = sorted((data / "clicks-0").glob("*.kafka"))
    file, pread = lost.stat().st_ino, os.pread

    def reading(descriptor, length, position):
        if os.fstat(descriptor).st_ino == file:
            raise OSError(EIO, os.strerror(EIO))
        return pread(descriptor, length, position)

    monkeypatch.setattr(FileLayer, "pread", staticmethod(reading))
    result, _ = replay("-p", 0, code=1)
    assert "topic 'clicks' partition 0: no good message starts at offset 0" in result.stderr
    _, sent = replay("-p", 0, "--skip-corrupt")
    assert sent["again", 0] == names(*range(lost.stat().st_size // 13, 20))
