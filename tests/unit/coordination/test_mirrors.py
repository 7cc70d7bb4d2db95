import json

import pytest

from hermes.coordination.mirrors import (
    MOST_BYTES,
    MOST_PARTITIONS,
    MirroredPartition,
    MirrorProcess,
)
from hermes.errors import InvalidNodeError

PATH = "/mirrors/far/h-1-aa"
ROW = MirroredPartition("east", "clicks", "0-3", "east.clicks", 10, 25, 1.5, "slow")
PROCESS = MirrorProcess(
    "far",
    "h-1-aa",
    host="h",
    pid=7,
    version="1",
    started_ms=1,
    time_ms=2,
    sources={"east": "uuid"},
    target="other",
    messages=3,
    mirrored_bytes=10,
    rate_bytes=2.5,
    lag_bytes=15,
    count=1,
    partitions=(ROW,),
    errors={"east": "does not answer"},
    refused={"east/loop": "it comes from here"},
)


def test_what_is_written_is_read() -> None:
    assert MirrorProcess.parse(PATH, PROCESS.format()) == PROCESS
    assert PROCESS.path == PATH
    assert ROW.lag_bytes == 15


def test_what_a_later_version_adds_is_ignored() -> None:
    more = json.loads(PROCESS.format()) | {"colour": "red"}
    more["partitions"][0]["size"] = 1
    assert MirrorProcess.parse(PATH, json.dumps(more).encode()) == PROCESS


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"pid": "x"}',
        b'{"pid": true}',
        b'{"errors": {"a": 1}}',
        b'{"errors": []}',
        b'{"partitions": 3}',
        b'{"partitions": [3]}',
        b'{"partitions": [{}]}',
        b'{"partitions": [' + b"{}," * MOST_PARTITIONS + b"{}]}",
    ],
)
def test_what_cannot_be_understood_names_its_path(value: bytes) -> None:
    with pytest.raises(InvalidNodeError, match=f"^{PATH}: expected"):
        MirrorProcess.parse(PATH, value)


def test_there_is_room_for_those_furthest_behind() -> None:
    rows = [MirroredPartition("s", "t" * 200, f"0-{n}", "t" * 200, 0, n) for n in range(9000)]
    rows[5] = MirroredPartition("s", "t", "0-5", "t", 0, 0, 0.0, "bad\n" * 1000)
    value = MirrorProcess("m", "p", count=9000, partitions=tuple(rows)).format()
    assert len(value) <= MOST_BYTES
    found = MirrorProcess.parse("/mirrors/m/p", value)
    shown = [each.partition for each in found.partitions]
    assert shown[:1] == ["0-5"]
    assert shown[-1] == "0-8999"
    assert 100 < len(shown) <= MOST_PARTITIONS
    assert "\n" not in found.partitions[0].error
