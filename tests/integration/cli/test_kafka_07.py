"""The commands with a broker that knows nothing but Kafka 0.7's requests."""

import pytest


def test_producing_falls_back_with_a_note_and_consuming_just_works(
    kafka, topic, tmp_path, access_log
):
    path = tmp_path / "access.log"
    path.write_bytes(access_log)
    sent = kafka("produce", "-t", topic, path)
    assert b"acknowledges nothing; sending with --acks none" in sent.stderr
    assert sent.stderr.count(b"\n") == 1
    read = kafka("consume", "-t", topic, "-e", "-q")
    assert (read.stdout == access_log, read.stderr) == (True, b"")


def test_an_acknowledgement_that_was_asked_for_is_refused(kafka, topic):
    refused = kafka("produce", "-t", topic, "--acks", "written", stdin=b"x\n", code=1)
    assert b"use --acks none" in refused.stderr
    assert kafka("produce", "-t", topic, "--acks", "none", stdin=b"x\n").stderr == b""


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_every_start(kafka, topic, codec):
    data = b"".join(b"%d\n" % number for number in range(20))
    kafka("produce", "-t", topic, "-z", codec, "--acks", "none", stdin=data)
    assert kafka("consume", "-t", topic, "-o", "-3", "-e").stdout == b"17\n18\n19\n"
    assert kafka("consume", "-t", topic, "-o", "0", "-c", "2").stdout == b"0\n1\n"
    assert kafka("consume", "-t", topic, "-o", "end", "-e").stdout == b""
    assert kafka("consume", "-t", topic, "-o", "@0", "-e").stdout == data


def test_all_partitions_are_found(kafka, partitioned):
    topic = partitioned()
    for partition in range(3):
        kafka("produce", "-t", topic, "-p", partition, "--acks", "none", stdin=b"x\n")
    shown = kafka("consume", "-t", topic, "-e", "-f", r"%p\n").stdout.split()
    assert sorted(shown) == [b"0", b"1", b"2"]
    missing = kafka("consume", "-t", topic, "-p", 3, "-e", code=1)
    assert b"no partition 3: its partitions are 0 to 2" in missing.stderr


def test_new_messages_show_without_a_waiting_fetch(kafka, topic):
    consumer = kafka.start("consume", "-t", topic, "-c", "2")
    kafka("produce", "-t", topic, "--acks", "none", stdin=b"a\n")
    assert consumer.stdout.readline() == b"a\n"
    kafka("produce", "-t", topic, "--acks", "none", stdin=b"b\n")
    assert consumer.communicate(timeout=60)[0] == b"b\n"


def test_offsets_work_and_topics_say_why_they_do_not(kafka, topic):
    kafka("produce", "-t", topic, "--acks", "none", stdin=b"abc\n")
    kafka("consume", "-t", topic, "-c", 1)  # until it is readable
    shown = kafka("offsets", "-t", topic).stdout.decode()
    assert shown.split()[4:] == [topic, "0", "0", "13"]
    for command in (("list",), ("describe", topic), ("delete", "--yes", topic)):
        refused = kafka("topics", *command, code=1)
        assert b"is a broker of Kafka 0.7, which can't " in refused.stderr
        assert refused.stderr.count(b"\n") == 1


def test_a_topic_that_nobody_wrote_to_is_an_error_when_it_is_to_be_read_to_its_end(kafka, topic):
    refused = kafka("consume", "-t", topic, "-e", code=1)
    assert refused.stdout == b""
    assert b"there is no topic" in refused.stderr
