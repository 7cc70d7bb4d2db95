"""`hermes dump-log` of segments of record batches."""

import json
from pathlib import Path

import pytest
from kafka_logs import append_batch, open_kafka_log, record, sent
from storage_logs import NOW_MS
from transacted_logs import Writer

from hermes.protocol.record_compression import RecordCodec


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    log, _ = open_kafka_log(tmp_path / "k-0")
    append_batch(log, sent([record(b"hello", key=b"k"), b"\xff"]))
    append_batch(log, sent([b"packed", record(None, key=b"gone")], RecordCodec.GZIP))
    log.flush()
    log.close()
    return tmp_path / "k-0" / f"{0:020d}.log"


@pytest.fixture
def dumped(run):
    def dump(*arguments):
        ran = run("dump-log", *arguments)
        return ran.exit_code, ran.stdout

    return dump


def test_a_line_stands_for_a_batch(segment, dumped):
    status, text = dumped(str(segment))
    assert status == 0
    head, titles, first, second = text.splitlines()
    assert head == f"{segment}: {segment.stat().st_size} bytes from offset 0"
    assert titles.split() == ["OFFSET", "SIZE", "COUNT", "CODEC", "CRC", "STATE"]
    assert first.split()[:1] + first.split()[2:4] == ["0", "2", "none"]
    assert second.split()[:1] + second.split()[2:4] == ["2", "2", "gzip"]
    assert first.split()[-1] == second.split()[-1] == "ok"


def test_the_messages_inside_are_shown_when_asked_for(segment, dumped):
    _, text = dumped("--deep", str(segment))
    assert len([line for line in text.splitlines() if " inside, at " in line]) == 4
    _, text = dumped("--payloads", str(segment))
    assert "key 'k': 'hello'" in text
    assert r"key none: '\\xff'" in text
    assert "key 'gone': none" in text
    _, text = dumped("--payloads", "--json", str(segment))
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["offset"] for row in rows] == [0, 0, 1, 2, 2, 3]
    assert rows[0]["message_count"] == 2
    assert rows[1]["key"] == {"payload": "k"}
    assert rows[1]["payload"] == "hello"
    assert rows[2]["payload_base64"] == "/w=="
    assert rows[5]["payload_bytes"] is None
    assert {row["timestamp_ms"] for row in rows if "inside" in row} == {NOW_MS}


def test_markers_are_shown_as_such(tmp_path, dumped):
    writer = Writer(open_kafka_log(tmp_path / "k-0")[0])
    writer.send(7)
    writer.end(7)
    writer.end(8, commit=True)
    writer.log.flush()
    segment = str(tmp_path / "k-0" / f"{0:020d}.log")
    _, text = dumped(segment)
    assert [line.partition("  ok, ")[2] for line in text.splitlines()[2:]] == [
        "producer 7 epoch 0 from 0, in a transaction",
        "producer 7 epoch 0, marker: abort",
        "producer 8 epoch 0, marker: commit",
    ]
    _, text = dumped("--json", segment)
    assert [json.loads(line).get("marker") for line in text.splitlines()] == [
        *(None, "abort", "commit")
    ]


def test_damage_is_shown_with_the_way_on(segment, dumped):
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    status, text = dumped(str(segment))
    assert status == 1
    assert "BAD: its CRC is not" in text
    assert "the next good batch starts at 2" in text
    segment.write_bytes(content[:65])
    status, text = dumped("--json", str(segment))
    assert status == 1
    assert json.loads(text)["problem"].endswith("bytes beyond the end")
