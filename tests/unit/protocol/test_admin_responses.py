"""The responses to operators' requests, against literal bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes import errors
from hermes.protocol import (
    ConfigChange,
    ErrorCode,
    LogLine,
    LogLines,
    PartitionDescription,
    PartitionDescriptions,
    SettingDescription,
    decode_log_lines_response,
    decode_partitions_response,
    decode_refusable_response,
    decode_reload_response,
    decode_settings_response,
    encode_log_lines_response,
    encode_partitions_response,
    encode_refusal,
    encode_reload_response,
    encode_settings_response,
)

SETTINGS = [SettingDescription("a", "1d", "default", True)]
PARTITIONS = PartitionDescriptions(
    300, 64, [PartitionDescription(1, 16, 32, 48, 2, 1000, None, "io", "bad")]
)
LINES = LogLines(7, (LogLine(1000, "warn", "m", "é"),))

ANSWERS: dict[str, tuple[Any, Any, Any, str]] = {
    "settings": (
        encode_settings_response,
        decode_settings_response,
        SETTINGS,
        "00000016 0000 0001 0001 61 0002 3164 0007 64656661756c74 0001",
    ),
    "partitions": (
        encode_partitions_response,
        decode_partitions_response,
        PARTITIONS,
        "00000045 0000 0000012c 00000040 0001"
        "00000001 0000000000000010 0000000000000020 0000000000000030 00000002"
        "00000000000003e8 ffffffffffffffff 0002 696f 0003 626164",
    ),
    "log lines": (
        encode_log_lines_response,
        decode_log_lines_response,
        LINES,
        "00000021 0000 0000000000000007 0001 00000000000003e8 0004 7761726e 0001 6d 0002 c3a9",
    ),
}


@pytest.mark.parametrize(("encode", "decode", "value", "written"), ANSWERS.values(), ids=ANSWERS)
def test_answers(
    encode: Callable[[Any], bytes], decode: Callable[..., Any], value: Any, written: str
) -> None:
    data = bytes.fromhex(written)
    assert encode(value) == data
    assert decode(data[4:]) == value
    wholes = {len(data) - 4 - len("  bad")} if value is PARTITIONS else set()  # without damage
    for length in set(range(2, len(data) - 4)) - wholes:
        with pytest.raises(errors.RemoteProtocolError):
            decode(data[4 : 4 + length])


def test_a_reload_tells_the_first_changes_and_how_many_there_are() -> None:
    changes = [ConfigChange("a", "1", "2", "")] * 1001
    answer = encode_reload_response(changes)
    start = bytes.fromhex("00002b00 0000 000003e9 03e8 0001 61 0001 31 0001 32 0000")
    assert answer.startswith(start)
    assert decode_reload_response(answer[4:]) == (1001, changes[:1000])


def test_older_brokers_tell_of_no_damage() -> None:
    answer = encode_partitions_response(PARTITIONS)
    (told,) = decode_partitions_response(answer[4:-5]).partitions
    assert told == PARTITIONS.partitions[0]._replace(damage="")


def test_the_line_after_these() -> None:
    assert LINES.next == 8


def test_a_refusal_says_why() -> None:
    refusal = encode_refusal(ErrorCode.UNKNOWN_TOPIC, "no such topic")
    assert refusal == bytes.fromhex("00000011 0041 000d") + b"no such topic"
    with pytest.raises(errors.UnknownTopicError, match="no such topic"):
        decode_refusable_response(refusal[4:], detail="topic 't'")


def test_a_refusal_of_a_code_alone_has_the_reason_of_the_code() -> None:
    for body in ("0041", "0041 0000"):
        with pytest.raises(errors.UnknownTopicError, match="the topic does not exist"):
            decode_refusable_response(bytes.fromhex(body))


@pytest.mark.parametrize("text", ["\N{SNOWMAN}" * 40_000, "a" * 40_000, "\ud800"])
def test_a_text_of_any_length_and_content_can_be_told(text: str) -> None:
    (told,) = decode_settings_response(
        encode_settings_response([SettingDescription("a", text, "default", False)])[4:]
    )
    assert len(told.value.encode()) <= 4000
    assert told.value[:1] in ("\N{SNOWMAN}", "a", "?")
