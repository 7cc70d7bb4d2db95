import json

import pytest


def rows(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def filled(broker, names, partitioned, hermes_once):
    """Two topics with messages: (one partition, three partitions)."""
    one, three = names(), partitioned()
    hermes_once("produce", "-t", one, stdin=b"abc\n" * 10)
    hermes_once("produce", "-t", three, "-p", 1, stdin=b"abcd\n")
    return one, three


def test_topics_list(hermes, filled):
    one, three = filled
    listed = {row["topic"]: row for row in rows(hermes("topics", "list", "--json"))}
    told = {"format": "0.7", "replicas": 1}
    assert listed[one] == {"topic": one, **told, "partitions": 1, "size_bytes": 130}
    assert listed[three] == {"topic": three, **told, "partitions": 3, "size_bytes": 14}
    table = hermes("topics", "list").stdout.decode().splitlines()
    assert table[0].split() == ["TOPIC", "FORMAT", "PARTITIONS", "REPLICAS", "SIZE"]
    assert [one, "0.7", "1", "1", "130", "B"] in [line.split() for line in table]


def test_topics_created_and_altered(hermes):
    create = hermes("topics", "create", "--partitions", "3", "--set", "retention_time=2d", "made")
    assert create.stdout == b"created made\n"
    again = hermes("topics", "create", "made", code=1)
    assert again.stderr == b"hermes: topic 'made' exists already\n"
    calm = hermes("topics", "create", "--if-not-exists", "made", "made2")
    assert calm.stdout == b"exists made\ncreated made2\n"
    altered = hermes("topics", "alter", "--set", "flush_messages=7", "made", "--json")
    assert rows(altered) == [{"altered": "made"}]
    described = rows(hermes("topics", "describe", "--settings", "made", "--json"))
    origins = {each["setting"]: (each["value"], each["origin"]) for each in described}
    assert origins["partitions"] == ("3", "altered")
    assert origins["retention_time"] == ("2d", "altered")
    assert origins["flush_messages"] == ("7", "altered")
    assert origins["segment_age"] == ("7d", "default")
    hermes("topics", "alter", "--reset", "all", "made")
    table = hermes("topics", "describe", "--settings", "made").stdout.decode()
    assert table.count("altered") == 2  # partitions and the format stay
    assert b"nothing to alter" in hermes("topics", "alter", "made", code=2).stderr
    wrong = hermes("topics", "alter", "--set", "a", "made", code=2)
    assert b"expected NAME=VALUE" in wrong.stderr


def test_copies_need_a_topic_of_kafkas_format_and_other_brokers(hermes):
    create = ["topics", "create", "--replicas", "2", "copied"]
    old = hermes(*create, code=1)
    assert b"replicas: messages of Kafka 0.7 have one copy: copies need `format: kafka`" in (
        old.stderr
    )
    alone = hermes(*create, "--set", "format=kafka", code=1)
    assert b"cannot be reached because only 1 broker(s) are registered" in alone.stderr
    assert b"need coordination and kafka_listen" in alone.stderr
    hermes("topics", "create", "--replicas", "1", "single")
    assert b"copied" not in hermes("topics", "list").stdout


def test_topics_describe(hermes, filled):
    one, three = filled
    assert rows(hermes("topics", "describe", three, one, "--json")) == [
        {
            "topic": three,
            "replicas": 1,
            "partitions": [
                {"partition": 0, "earliest": 0, "high_watermark": 0, "size_bytes": 0},
                {"partition": 1, "earliest": 0, "high_watermark": 14, "size_bytes": 14},
                {"partition": 2, "earliest": None, "high_watermark": None, "size_bytes": 0},
            ],
        },
        {
            "topic": one,
            "replicas": 1,
            "partitions": [
                {"partition": 0, "earliest": 0, "high_watermark": 130, "size_bytes": 130}
            ],
        },
    ]
    table = hermes("topics", "describe", three).stdout.decode().splitlines()
    assert [line.split() for line in table] == [
        ["TOPIC", "PARTITION", "REPLICAS", "EARLIEST", "LATEST", "BYTES"],
        [three, "0", "1", "0", "0", "0"],
        [three, "1", "1", "0", "14", "14"],
        [three, "2", "1", "-", "-", "0"],
    ]


def test_topics_delete_asks_and_without_a_yes_nothing_happens(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"x\n")
    for answer in (b"n\n", b"\n", b""):
        kept = hermes("topics", "delete", topic, stdin=answer, code=1)
        assert kept.stdout == b""
        assert f"Delete topic '{topic}' on 127.0.0.1:".encode() in kept.stderr
        assert kept.stderr.endswith(b"hermes: aborted: nothing was done\n")
    assert hermes("topics", "delete", topic, stdin=b"y\n").stdout == f"deleted {topic}\n".encode()
    gone = hermes("topics", "delete", topic, "--yes", code=1)
    assert f"there is no topic '{topic}'" in gone.stderr.decode()


def test_topics_delete_for_scripts(hermes, topic):
    hermes("produce", "-t", topic, stdin=b"x\n")
    assert rows(hermes("topics", "delete", topic, "--yes", "--json")) == [{"deleted": topic}]
    assert hermes("consume", "-t", topic, "-e", code=1).stdout == b""


@pytest.mark.parametrize("command", [["topics", "describe"], ["offsets", "-t"]])
def test_an_unknown_topic_is_told(hermes, command):
    told = hermes(*command, "nobody-knows", code=1)
    assert told.stderr.decode().startswith("hermes: there is no topic 'nobody-knows'")


def test_offsets_of_every_partition_and_of_one(hermes, filled):
    _, three = filled
    table = hermes("offsets", "-t", three).stdout.decode().splitlines()
    assert [line.split() for line in table] == [
        ["TOPIC", "PARTITION", "EARLIEST", "LATEST"],
        [three, "0", "0", "0"],
        [three, "1", "0", "14"],
        [three, "2", "0", "0"],
    ]
    assert rows(hermes("offsets", "-t", three, "-p", 1, "--json")) == [
        {"topic": three, "partition": 1, "earliest": 0, "latest": 14}
    ]


def test_offsets_at_named_times(hermes, filled):
    one, _ = filled
    latest = hermes("offsets", "-t", one, "--time", "latest", "--max", 5, "--json")
    assert rows(latest)[0]["offsets"] == [130, 0]
    earliest = hermes("offsets", "-t", one, "--time", "earliest", "--json")
    assert rows(earliest)[0]["offsets"] == [0]
    before = hermes("offsets", "-t", one, "--time", "2001-01-01", "--json")
    assert rows(before)[0]["offsets"] == []
    assert hermes("offsets", "-t", one, "--time", "2001-01-01").stdout.split()[-1] == b"-"


def test_perf_measures_what_it_sends_and_reads(hermes, topic):
    load = ["-t", topic, "-n", 2050, "--size", 100, "--batch", 100]
    sent = rows(hermes("perf", "produce", *load, "--acks", "flushed", "--json"))[0]
    assert (sent["messages"], sent["size_bytes"]) == (2050, 205_000)
    assert sent["messages_per_second"] > 0
    assert sorted(sent["latency_ms"]) == ["max", "p50", "p95", "p99", "p99.9"]
    assert sent["latency_ms"]["p50"] <= sent["latency_ms"]["p99"] <= sent["latency_ms"]["max"]
    read = rows(hermes("perf", "consume", "-t", topic, "--json"))[0]
    assert (read["messages"], read["size_bytes"]) == (2050, 205_000)
    assert "latency_ms" not in read
    assert b"2050 messages read in " in hermes("perf", "consume", "-t", topic).stdout
    text = hermes("perf", "produce", *load, "--acks", "written", "-z", "gzip").stdout
    assert b"latency of a request in ms: p50 " in text
    assert hermes("perf", "consume", "-t", topic, "-p", 0, "-o", "-10").stdout.startswith(b"10 ")


def test_perf_refuses_what_makes_no_sense(hermes, topic):
    too_large = hermes("perf", "produce", "-t", topic, "--size", "2MB", code=2)
    assert b"messages of up to 1000000 bytes" in too_large.stderr
    nothing = hermes("perf", "consume", "-t", topic, code=1)
    assert b"nothing to read" in nothing.stderr
