import json
import os
import resource
import signal
import time
from collections import Counter

import pytest

from hermes.plugins.partitioners.java_hash import java_hash


def count_descriptors(pid):
    """One more than it has open: for the connection of a client."""
    return len(os.listdir(f"/proc/{pid}/fd")) + 1


def lines(ended):
    return ended.stdout.decode().splitlines()


# -- the main job -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [[], ["-z", "gzip"], ["-z", "snappy"], ["--acks", "none"], ["--acks", "written", "-p", "0"]],
    ids=" ".join,
)
def test_an_access_log_goes_in_and_comes_out_byte_for_byte(
    hermes, topic, tmp_path, access_log, options
):
    path = tmp_path / "access.log"
    path.write_bytes(access_log)
    sent = hermes("produce", "-t", topic, *options, path)
    assert (sent.stdout, sent.stderr) == (b"", b"")
    read = hermes("consume", "-t", topic, "-o", "beginning", "-e", "-q")
    assert read.stderr == b""
    assert read.stdout == access_log


def test_stdin_is_as_good_as_a_file_and_any_byte_survives(hermes, topic):
    data = bytes(range(256)) * 20 + b"\n\n" + b"\r\n" + b"\xff\xfe\n"
    hermes("produce", "-t", topic, stdin=data)
    assert hermes("consume", "-t", topic, "-e").stdout == data


def test_the_last_line_may_lack_its_newline_and_empty_lines_are_messages(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"\na\n\nb")
    assert hermes("consume", "-t", topic, "-e", "-f", "[%s]").stdout == b"[][a][][b]"


def test_nothing_in_creates_nothing(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"")
    assert topic not in hermes("topics", "list").stdout.decode()


# -- live ---------------------------------------------------------------------------------------


def test_lines_of_a_pipe_are_sent_as_they_come_and_show_at_once(hermes, topic):
    consumer = hermes.start("consume", "-t", topic)
    producer = hermes.start("produce", "-t", topic)
    for number in range(5):
        producer.stdin.write(b"line %d\n" % number)
        producer.stdin.flush()
        # Neither the end of stdin nor a full batch has come yet.
        assert consumer.stdout.readline() == b"line %d\n" % number
    producer.stdin.close()
    assert producer.wait(60) == 0
    assert consumer.poll() is None
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(60) == 130
    assert consumer.stdout.read() == b""
    note = f"hermes: there is no topic '{topic}'; waiting for its first message\n"
    assert consumer.stderr.read().decode() in (note, "")


def test_a_count_ends_a_consumer_that_waits(hermes, topic):
    consumer = hermes.start("consume", "-t", topic, "-q", "-c", "3")
    hermes("produce", "-t", topic, stdin=b"a\nb\n")
    hermes("produce", "-t", topic, stdin=b"c\nd\n")
    assert consumer.communicate(timeout=60) == (b"a\nb\nc\n", b"")
    assert consumer.returncode == 0


def test_from_the_end_only_new_messages_come(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"old\n")
    assert hermes("consume", "-t", topic, "-o", "end", "-e").stdout == b""
    consumer = hermes.start("consume", "-t", topic, "-o", "-1", "-c", "2")
    assert consumer.stdout.readline() == b"old\n"  # so that it has found its place
    hermes("produce", "-t", topic, stdin=b"new\n")
    assert consumer.communicate(timeout=60)[0] == b"new\n"


def test_a_reader_that_has_seen_enough_is_no_failure(hermes, topic, tmp_path):
    hermes("produce", "-t", topic, stdin=b"x" * 999 + b"\n" + b"y" * 99 + b"\n" * 200_000)
    consumer = hermes.start("consume", "-t", topic, "-e")
    assert consumer.stdout.readline() == b"x" * 999 + b"\n"
    consumer.stdout.close()
    assert consumer.wait(60) == 0
    assert consumer.stderr.read() == b""


def test_ctrl_c_tells_how_far_a_producer_came(hermes, topic):
    producer = hermes.start("produce", "-t", topic)
    producer.stdin.write(b"one\ntwo\n")
    producer.stdin.flush()
    assert hermes("consume", "-t", topic, "-q", "-c", "2").stdout == b"one\ntwo\n"
    producer.send_signal(signal.SIGINT)
    assert producer.wait(60) == 130
    assert producer.stderr.read() == b"hermes: lines 1 to 2 are stored\n"


# -- where to start, what to show ---------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_last_n_messages_whatever_sets_they_are_in(hermes, topic, codec):
    for first in (0, 10, 20):
        batch = b"".join(b"%d\n" % number for number in range(first, first + 10))
        hermes("produce", "-t", topic, "-z", codec, stdin=batch)
    for count in (1, 10, 13, 30, 99):
        shown = lines(hermes("consume", "-t", topic, "-o", f"-{count}", "-e"))
        assert shown == [str(number) for number in range(30)][-count:]


def test_an_offset_that_was_shown_is_where_one_can_go_on(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"a\nb\nc\n")
    shown = lines(hermes("consume", "-t", topic, "-e", "-f", r"%o %O %s\n"))
    assert shown == ["0 11 a", "11 22 b", "22 33 c"]
    assert lines(hermes("consume", "-t", topic, "-o", 11, "-e")) == ["b", "c"]


def test_an_offset_within_a_message_and_one_beyond_the_end_are_explained(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"aaaaaaaaaa\nb\n")
    within = hermes("consume", "-t", topic, "-o", 5, "-e", code=1).stderr.decode()
    assert "no good message starts at offset 5: it is within what starts at 0" in within
    assert "the next one starts at 20" in within
    beyond = hermes("consume", "-t", topic, "-o", 32, "-e", code=1).stderr.decode()
    assert beyond == (
        f"hermes: topic '{topic}' partition 0: offset 32 is not available: it holds 0 to 31\n"
    )


def test_json_has_the_place_and_the_payload(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"text\n\xff\n")
    assert [json.loads(line) for line in lines(hermes("consume", "-t", topic, "-e", "-J"))] == [
        {"topic": topic, "partition": 0, "offset": 0, "next_offset": 14, "payload": "text"},
        {"topic": topic, "partition": 0, "offset": 14, "next_offset": 25, "payload_base64": "/w=="},
    ]


def test_all_partitions_are_read_and_each_in_its_order(hermes, partitioned):
    topic = partitioned()
    for partition in (2, 0):
        batch = b"".join(b"%d-%d\n" % (partition, number) for number in range(50))
        hermes("produce", "-t", topic, "-p", partition, stdin=batch)
    shown = lines(hermes("consume", "-t", topic, "-e", "-f", r"%p %s\n"))
    assert len(shown) == 100
    for partition in (0, 2):
        mine = [line for line in shown if line.startswith(f"{partition} ")]
        assert mine == [f"{partition} {partition}-{number}" for number in range(50)]
    assert lines(hermes("consume", "-t", topic, "-p", 2, "-o", "-2", "-e")) == ["2-48", "2-49"]
    assert sorted(lines(hermes("consume", "-t", topic, "-o", "-1", "-e"))) == ["0-49", "2-49"]
    assert len(lines(hermes("consume", "-t", topic, "-c", 7))) == 7


def test_random_partitions_get_whole_batches(hermes, partitioned):
    topic = partitioned()
    for number in range(3):
        hermes("produce", "-t", topic, "-p", -1, stdin=b"%d\n" % number * 100)
    shown = lines(hermes("consume", "-t", topic, "-e", "-f", r"%s %p\n"))
    assert sorted(line.split()[0] for line in shown) == ["0"] * 100 + ["1"] * 100 + ["2"] * 100
    assert len(set(shown)) == 3


# -- what goes wrong ----------------------------------------------------------------------------


def one_line(ended):
    assert ended.stdout == b""
    text = ended.stderr.decode()
    assert text.startswith("hermes: ")
    assert text.count("\n") == 1
    return text


def test_a_topic_that_is_not_there(hermes, topic):
    assert f"no topic '{topic}'" in one_line(hermes("consume", "-t", topic, "-e", code=1))


def test_a_partition_that_is_not_there(hermes, topic, partitioned):
    there_are_three = partitioned()
    hermes("produce", "-t", there_are_three, "-p", 0, stdin=b"x\n")
    error = one_line(hermes("consume", "-t", there_are_three, "-p", 3, "-e", code=1))
    assert "no partition 3: its partitions are 0 to 2" in error
    assert "no line is known to be stored" in one_line(
        hermes("produce", "-t", there_are_three, "-p", 3, stdin=b"x\n", code=1)
    )


def test_an_offset_for_several_partitions_is_a_wrong_command_line(hermes, partitioned):
    error = one_line(hermes("consume", "-t", partitioned(), "-o", 0, "-e", code=2))
    assert "give -p, 0 to 2" in error


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["-t", "a/b"], "U+002F"),
        (["-t", "x", "-o", "noon"], "expected beginning, end, an offset, -N"),
        (["-t", "x", "-f", "%z"], "%z is not a token"),
        (["-t", "x", "-f", "%s", "-J"], "exclude each other"),
        (["-t", "x", "-c", "0"], "0 is not in the range"),
        (["-t", "x", "-b", "host:port"], "expected HOST:PORT"),
    ],
)
def test_wrong_options_say_what_is_expected(hermes, options, hint):
    assert hint in one_line(hermes("consume", *options, code=2))


def test_a_broker_that_is_not_there(hermes_at, unused_port):
    nobody = hermes_at(unused_port)
    for command in (["consume", "-t", "x", "-e"], ["produce", "-t", "x"], ["topics", "list"]):
        assert "is the broker running there?" in one_line(nobody(*command, stdin=b"x\n", code=1))


def test_something_that_is_no_broker(hermes_at, listening_nonsense):
    error = one_line(hermes_at(listening_nonsense)("topics", "list", code=1))
    assert "speaks HTTP: give the broker's port" in error


def test_a_line_that_is_too_large_is_named_and_those_before_it_are_stored(hermes, topic):
    data = b"one\ntwo\n" + b"x" * 1_000_001 + b"\nfour\n"
    error = one_line(hermes("produce", "-t", topic, stdin=data, code=1))
    assert "line 3 is longer than 1000000 bytes" in error
    assert "lines 1 to 2 are stored" in error
    assert hermes("consume", "-t", topic, "-e").stdout == b"one\ntwo\n"


def test_the_largest_line_is_taken(hermes, topic):
    data = b"x" * 1_000_000 + b"\n"
    hermes("produce", "-t", topic, stdin=data)
    assert hermes("consume", "-t", topic, "-e").stdout == data


def test_a_file_that_is_not_there_and_a_directory(hermes, topic, tmp_path):
    missing = one_line(hermes("produce", "-t", topic, tmp_path / "none", code=1))
    assert missing == f"hermes: {tmp_path / 'none'}: No such file or directory\n"
    assert "is a directory" in one_line(hermes("produce", "-t", topic, tmp_path, code=2))


def test_a_full_disk_behind_stdout_is_told(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"x\n" * 100)
    with open("/dev/full", "wb") as full:
        consumer = hermes.start("consume", "-t", topic, "-e", stdout=full)
        assert consumer.wait(60) == 1
    assert consumer.stderr.read() == b"hermes: No space left on device\n"


# -- with settings of the broker's own ----------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        (resource.RLIMIT_FSIZE, lambda pid: 100, "append at offset 5010: File too large"),
        (resource.RLIMIT_NOFILE, count_descriptors, "prepare an append: Too many open files"),
    ],
    ids=["disk", "descriptors"],
)
def test_a_broker_that_can_not_store_says_why(start_broker, hermes_at, limit, value, reason):
    """A limit of files' sizes is as good as a full disk; a new segment takes a descriptor."""
    broker = start_broker(segment_bytes=4096)
    hermes = hermes_at(broker.port)
    hermes("produce", "-t", "full", stdin=b"x" * 5000 + b"\n")
    pid = broker.process.pid
    before = resource.prlimit(pid, limit)
    resource.prlimit(pid, limit, (value(pid), before[1]))
    producing = hermes.start("produce", "-t", "full")
    producing.stdin.write(b"y" * 200 + b"\n")
    producing.stdin.close()
    said = producing.stderr.readline().decode()
    resource.prlimit(pid, limit, before)
    assert said == (
        f"hermes: topic 'full': the broker could not store it (full-0: {reason}); nothing was "
        "written; retrying\n"
    )
    assert producing.wait(60) == 0
    assert f"could not append to full: full-0: {reason}" in "".join(broker.lines)


def test_a_message_larger_than_a_fetch(start_broker, hermes_at):
    hermes = hermes_at(start_broker(max_message_bytes="8MiB").port)
    data = os.urandom(6_000_000).replace(b"\n", b"") + b"\nsmall\n"
    hermes("produce", "-t", "large", stdin=data)
    assert hermes("consume", "-t", "large", "-e").stdout == data
    error = one_line(hermes("consume", "-t", "large", "-e", "--max-fetch", "2MiB", code=1))
    assert "more than the largest fetch of 2097152" in error
    assert "(--max-fetch)" in error


def test_segments_are_crossed(start_broker, hermes_at, access_log):
    broker = start_broker(segment_bytes="100KiB")
    hermes = hermes_at(broker.port)
    whole_lines = access_log.splitlines(keepends=True)
    for start in range(0, len(whole_lines), 1000):
        hermes("produce", "-t", "access", stdin=b"".join(whole_lines[start : start + 1000]))
    assert len(list((broker.log_dir / "access-0").glob("*.kafka"))) > 5
    assert hermes("consume", "-t", "access", "-e").stdout == access_log
    last = b"".join(whole_lines[-3000:])
    assert hermes("consume", "-t", "access", "-o", "-3000", "-e").stdout == last


def test_other_delimiters_go_in_and_come_out(hermes, topic):
    hermes("produce", "-t", topic, "-D", r"--\0", stdin=b"one\ntwo--\x00three--\x00")
    shown = hermes("consume", "-t", topic, "-e", "-D", "%;").stdout
    assert shown == b"one\ntwo%;three%;"
    assert b"can't be empty" in hermes("produce", "-t", topic, "-D", "", code=2).stderr
    assert b"excludes" in hermes("consume", "-t", topic, "-D", ";", "-J", code=2).stderr


def test_a_key_chooses_the_partition_and_is_not_stored(hermes, partitioned):
    topic = partitioned()
    keys = [f"user-{number}" for number in range(30)]
    lines = [f"{key}:a:b" for key in keys] + ["no key"]
    hermes("produce", "-t", topic, "-K", ":", stdin="\n".join(lines * 2).encode())
    shown = hermes("consume", "-t", topic, "-e", "-f", r"%p %s\n").stdout.decode().splitlines()
    expected = Counter(f"{abs(java_hash(key)) % 3} a:b" for key in keys * 2)
    assert Counter(line for line in shown if "no key" not in line) == expected
    assert len(expected) == 3
    assert len(shown) == 62
    refused = hermes("produce", "-t", topic, "-K", ":", "-p", 1, code=2)
    assert b"exclude each other" in refused.stderr


def test_a_format_can_show_when_a_message_was_appended(hermes, topic):
    before = int(time.time() * 1000)
    hermes("produce", "-t", topic, stdin=b"a\nb\n")
    hermes("produce", "-t", topic, "-z", "gzip", stdin=b"c\nd\n")
    after = int(time.time() * 1000) + 1
    shown = hermes("consume", "-t", topic, "-e", "-f", r"%T %s\n").stdout.split()
    assert shown[1::2] == [b"a", b"b", b"c", b"d"]
    assert all(before <= int(each) <= after for each in shown[::2])
