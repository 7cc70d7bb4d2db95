"""The commands on data directories that were made by hand: damaged, or with times of their own."""

import json
from zlib import crc32

import pytest

from hermes.protocol import Codec, encode_message_set
from hermes.storage.index_entries import IndexEntry, encode_entry

PAYLOADS = [b"payload %02d" % number for number in range(30)]
SIZE = 20  # of each message in the log
DATA = encode_message_set(PAYLOADS)


def wanted(*without):
    return b"".join(payload + b"\n" for n, payload in enumerate(PAYLOADS) if n not in without)


@pytest.fixture
def serve(start_broker, hermes_at, tmp_path):
    """A broker on prepared topics, as if it had been stopped cleanly before; `hermes` for it."""

    def start(topics, index=b""):
        logs = tmp_path / "prepared"
        for topic, segments in topics.items():
            (logs / f"{topic}-0").mkdir(parents=True)
            for base, data in segments.items():
                (logs / f"{topic}-0" / f"{base:020d}.kafka").write_bytes(data)
            if index:
                (logs / f"{topic}-0" / f"{0:020d}.timeindex").write_bytes(index)
        (logs / ".kafka_cleanshutdown").touch()
        broker = start_broker(log_dir=str(logs))
        return hermes_at(broker.port), logs

    return start


def changed(position, value=None):
    data = bytearray(DATA)
    data[position] = data[position] ^ 1 if value is None else value
    return bytes(data)


def test_a_damaged_message_ends_a_consumer_or_is_skipped_and_counted(serve):
    hermes, _ = serve({"t": {0: changed(10 * SIZE + 15)}})
    stopped = hermes("consume", "-t", "t", "-e", code=1)
    assert stopped.stdout == b"".join(payload + b"\n" for payload in PAYLOADS[:10])
    error = stopped.stderr.decode()
    assert "no good message starts at offset 200: " in error
    assert "; the next one starts at 220, where --skip-corrupt would continue" in error
    assert error.count("\n") == 1
    skipped = hermes("consume", "-t", "t", "-e", "--skip-corrupt")
    assert skipped.stdout == wanted(10)
    assert skipped.stderr.decode().splitlines() == [
        "hermes: topic 't' partition 0: skipped damage from offset 200 to 220",
        "hermes: 1 damaged place was skipped",
    ]
    assert hermes("consume", "-t", "t", "-e", "-o", 220).stdout == wanted(*range(11))
    assert hermes("consume", "-t", "t", "-e", "-o", -5).stdout == wanted(*range(25))


def test_damage_anywhere_in_a_header_costs_one_message_only(serve):
    topics = {
        f"byte-{byte}-{value}": {0: changed(10 * SIZE + byte, value)}
        for byte in range(5)
        for value in (0x02, 0x7F, 0xFF)
    }
    hermes, _ = serve(topics)
    for topic in topics:
        shown = hermes("consume", "-t", topic, "-e", "--skip-corrupt")
        assert (topic, shown.stdout) == (topic, wanted(10))
        assert b"from offset 200 to 220" in shown.stderr


def test_nonsense_at_the_end_of_an_old_segment(serve):
    nonsense = b"\xff" * 100
    hermes, _ = serve({"t": {0: DATA + nonsense, len(DATA) + 100: DATA}})
    assert hermes("consume", "-t", "t", "-e", "--skip-corrupt").stdout == wanted() * 2
    error = hermes("consume", "-t", "t", "-e", code=1).stderr.decode()
    assert f"offset {len(DATA)}" in error
    assert f"the next one starts at {len(DATA) + 100}" in error


def test_a_damaged_compressed_set_is_one_place(serve):
    first = encode_message_set(PAYLOADS[:10], Codec.GZIP)
    second = bytearray(encode_message_set(PAYLOADS[10:20], Codec.GZIP))
    second[-1] ^= 1
    third = encode_message_set(PAYLOADS[20:], Codec.SNAPPY)
    hermes, _ = serve({"t": {0: first + bytes(second) + third}})
    assert hermes("consume", "-t", "t", "-e", "--skip-corrupt").stdout == wanted(*range(10, 20))
    assert hermes("consume", "-t", "t", "-e", "-o", -5).stdout == wanted(*range(25))


# -- times --------------------------------------------------------------------------------------


def entry(time_ms, end_offset):
    tail = DATA[max(0, end_offset - 64) : end_offset]
    return encode_entry(IndexEntry(time_ms, end_offset, crc32(tail)))


INDEX = entry(1000, 10 * SIZE) + entry(2000, 20 * SIZE) + entry(3000, 30 * SIZE)


def test_a_time_is_where_the_first_message_since_then_starts(serve):
    hermes, _ = serve({"t": {0: DATA}}, INDEX)
    for time, missing in (
        ("@0", 0),
        ("@1000", 0),  # what was appended at that time is wanted
        ("@1001", 10),
        ("@2000", 10),
        ("@1970-01-01T00:00:02.001", 20),
        ("@1970-01-01T01:00:03+01:00", 20),
        ("@3001", 30),
        ("@2100-01-01", 30),
    ):
        shown = hermes("consume", "-t", "t", "-o", time, "-e").stdout
        assert (time, shown) == (time, wanted(*range(missing)))


def test_offsets_at_a_time(serve):
    hermes, _ = serve({"t": {0: DATA}}, INDEX)
    shown = hermes("offsets", "-t", "t", "--time", "1970-01-01T00:00:02Z", "--json").stdout
    assert json.loads(shown) == {"topic": "t", "partition": 0, "offsets": [20 * SIZE]}


# -- checking beside a broker -------------------------------------------------------------------


def test_check_log_finds_the_damage_while_the_broker_runs(serve):
    hermes, logs = serve({"t": {0: changed(10 * SIZE + 15)}})
    checked = hermes("check-log", logs, "--json", code=1)
    problem, summary = map(json.loads, checked.stdout.splitlines())
    assert (problem["kind"], problem["offset"], problem["next_offset"]) == ("problem", 200, 220)
    assert (summary["messages"], summary["problems"], summary["notices"]) == (29, 1, 0)


def test_check_log_beside_a_broker_that_is_being_written_to_finds_nothing(serve):
    hermes, logs = serve({"t": {0: DATA}})
    load = [hermes.start("perf", "produce", "-t", "load", "-n", "200000") for _ in range(2)]
    checks = 0
    while checks < 3 or any(each.poll() is None for each in load):
        assert hermes("check-log", logs).stdout.endswith(b": 0 problems, 0 notices\n")
        checks += 1
    for each in load:
        assert each.wait(60) == 0
    final = json.loads(hermes("check-log", logs, "--json").stdout)
    assert final["messages"] == 30 + 2 * 200_000


def test_dump_log_reads_a_live_segment(serve):
    hermes, logs = serve({"t": {0: DATA}})
    hermes("produce", "-t", "t", "-z", "snappy", stdin=b"a\nb\n")
    shown = hermes("dump-log", logs / "t-0" / f"{0:020d}.kafka", "--json", "--deep").stdout
    rows = [json.loads(line) for line in shown.splitlines()]
    assert len(rows) == 30 + 1 + 2
    assert [row["codec"] for row in rows[-3:]] == ["snappy", "none", "none"]
