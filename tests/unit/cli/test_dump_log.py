import json
from zlib import crc32

import pytest

from hermes.protocol import Codec, encode_message, encode_message_set

# Written by Kafka 0.7: int32 length | magic 1 | attributes 0 | crc32 | "hello"
KAFKA_MESSAGE = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")


def rows_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_segment_is_shown_message_by_message(run, make_segment):
    path = make_segment(KAFKA_MESSAGE + encode_message(b"x" * 100, magic=0), base=1000)
    result = run("dump-log", path)
    assert (result.exit_code, result.stderr) == (0, "")
    crc = f"{crc32(b'x' * 100):#010x}"
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["OFFSET", "SIZE", "MAGIC", "CODEC", "CRC", "STATE"],
        ["1000", "15", "1", "none", "0x3610a686", "ok"],
        ["1015", "109", "0", "none", crc, "ok"],
    ]
    assert result.stdout.splitlines()[0] == f"{path}: 124 bytes from offset 1000"


def test_json_has_everything_of_the_header(run, make_segment):
    path = make_segment(KAFKA_MESSAGE)
    assert rows_of(run("dump-log", "--json", path)) == [
        {
            "file": str(path),
            "offset": 0,
            "next_offset": 15,
            "size_bytes": 15,
            "valid": True,
            "magic": 1,
            "attributes": 0,
            "codec": "none",
            "crc": 0x3610A686,
            "payload_bytes": 5,
        }
    ]


def test_payloads_are_shown_when_asked_for_whatever_they_are(run, make_segment):
    path = make_segment(encode_message_set(["ä".encode(), b"\xff\n"]))
    rows = rows_of(run("dump-log", "--json", "--payloads", path))
    assert [row.get("payload", row.get("payload_base64")) for row in rows] == ["ä", "/wo="]
    text = run("dump-log", "--payloads", path).stdout
    assert text.splitlines()[2].endswith("ok  'ä'")
    assert text.splitlines()[3].endswith(r"ok  '\\xff\n'")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_deep_shows_what_is_inside_compressed_messages(run, make_segment, codec):
    data = encode_message_set([b"one", b"three"], codec)
    path = make_segment(data + KAFKA_MESSAGE)
    shallow = rows_of(run("dump-log", "--json", path))
    assert [(row["codec"], row.get("message_count")) for row in shallow] == [
        (codec.name.lower(), 2),
        ("none", None),
    ]
    deep = rows_of(run("dump-log", "--json", "--deep", "--payloads", path))
    assert [(row["offset"], row.get("inside"), row.get("payload")) for row in deep] == [
        (0, None, None),
        (0, 1, "one"),
        (0, 2, "three"),
        (len(data), None, "hello"),
    ]
    text = run("dump-log", "--deep", path).stdout.splitlines()
    assert text[2].endswith("ok, 2 messages inside")
    assert [line.split()[:3] for line in text[3:5]] == [
        ["inside:", "1", "13"],
        ["inside:", "2", "15"],
    ]


def test_a_bad_message_is_shown_with_the_reason_and_the_next_good_one(run, make_segment):
    data = bytearray(KAFKA_MESSAGE * 3)
    data[15 + 10] ^= 1
    path = make_segment(bytes(data), base=100)
    result = run("dump-log", "--json", path)
    assert result.exit_code == 1
    assert result.stderr == "hermes: one place is damaged\n"
    rows = rows_of(result)
    assert [(row["offset"], row["next_offset"], row["valid"]) for row in rows] == [
        (100, 115, True),
        (115, 130, False),
        (130, 145, True),
    ]
    assert rows[1]["problem"].startswith("its CRC is 0x3610a686, but that of its payload is ")
    assert "BAD: its CRC is 0x3610a686" in run("dump-log", path).stdout
    assert "the next good message starts at 130" in run("dump-log", path).stdout


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_torn_tail_has_no_next_message(run, make_segment, cut):
    path = make_segment(KAFKA_MESSAGE + KAFKA_MESSAGE[:cut])
    result = run("dump-log", "--json", path)
    assert result.exit_code == 1
    rows = rows_of(result)
    assert [(row["offset"], row["next_offset"], row["valid"]) for row in rows] == [
        (0, 15, True),
        (15, None, False),
    ]
    assert rows[1]["size_bytes"] == cut


def test_a_codec_bit_that_flipped_is_a_problem_though_the_crc_is_right(run, make_segment):
    data = bytearray(KAFKA_MESSAGE * 2)
    for codec, expected in ((1, "gzip"), (2, "snappy"), (3, "codec-3")):
        data[5] = codec
        result = run("dump-log", "--json", "--deep", make_segment(bytes(data)))
        assert result.exit_code == 1
        first, second = rows_of(result)
        assert (first["codec"], first["valid"]) == (expected, False)
        assert (second["offset"], second["valid"]) == (15, True)


def test_zeros_at_the_end_are_one_place(run, make_segment):
    path = make_segment(KAFKA_MESSAGE + bytes(3_000_000))
    result = run("dump-log", "--json", path)
    assert [row["valid"] for row in rows_of(result)] == [True, False]


def test_a_length_that_claims_the_rest_of_the_file_loses_nothing_behind_it(run, make_segment):
    lie = (3_000_000 - 15).to_bytes(4, "big") + KAFKA_MESSAGE[4:]
    rest = encode_message_set([b"%d" % number for number in range(1000)])
    path = make_segment((lie + rest).ljust(3_000_000, b"\0"))
    rows = rows_of(run("dump-log", "--json", "--payloads", path))
    assert [row.get("payload") for row in rows] == [None, *map(str, range(1000)), None]


def test_an_expansion_beyond_the_limit_is_told_and_can_be_allowed(run, make_segment):
    path = make_segment(encode_message_set([b"z" * 100_000], Codec.GZIP))
    refused = run("dump-log", "--max-expanded", "64KiB", path)
    assert refused.exit_code == 1
    assert "expand to more than 65536 bytes" in refused.stdout
    assert run("dump-log", "--max-expanded", "200KB", path).exit_code == 0


def test_several_files_and_an_empty_one(run, make_segment):
    first, second = make_segment(b""), make_segment(KAFKA_MESSAGE, base=5)
    rows = rows_of(run("dump-log", "--json", first, second))
    assert [(row["file"], row["offset"]) for row in rows] == [(str(second), 5)]


def test_a_file_of_another_name_counts_from_0(run, tmp_path):
    path = tmp_path / "copy of a segment"
    path.write_bytes(KAFKA_MESSAGE)
    assert rows_of(run("dump-log", "--json", path))[0]["offset"] == 0


def test_no_such_file_is_a_wrong_command_line(run, tmp_path):
    result = run("dump-log", tmp_path / "none")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["0.index", "0.timeindex", "0.snapshot"])
def test_what_is_kept_beside_segments_is_refused(run, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(bytes(8))
    result = run("dump-log", path)
    assert result.exit_code == 2
    assert "isn't a segment, but kept beside one" in result.stderr
