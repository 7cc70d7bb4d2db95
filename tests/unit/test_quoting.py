"""Foreign text as people see it."""

import os
import subprocess

import pytest

from hermes.errors import InvalidTopicError, LocalProtocolError
from hermes.protocol import check_topic_name
from hermes.protocol.wire import encode_string
from hermes.quoting import printable, quoted, shell_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clicks", "clicks"),
        ("Grüße, 世界 🙂", "Grüße, 世界 🙂"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\u200bb\u2066c\ufeff", r"a\u200bb\u2066c\ufeff"),
        ("\ud800", r"\ud800"),
        (os.fsdecode(b"caf\xe9"), r"caf\xe9"),
        ("\u2028", r"\u2028"),
        ("", ""),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_what_was_cut_is_said() -> None:
    assert printable("x" * 100, 10) == "xxxxxxxxxx... (90 more)"
    assert printable("x" * 10, 10) == "x" * 10
    assert quoted("x" * 100, 10) == "'xxxxxxxxxx'... (90 more)"
    assert quoted(b"\x00" * 100, 2) == r"b'\x00\x00'... (98 more)"
    assert quoted(memoryview(bytearray(b"ab"))) == "b'ab'"
    assert quoted("a\u202e'") == '"a\\u202e\'"'


def test_other_values_are_shown_by_their_repr_and_bounded() -> None:
    assert quoted(17) == "17"
    assert len(quoted([0] * 10_000)) < 200


def test_a_huge_value_is_not_looked_at_as_a_whole() -> None:
    class Counted(str):
        def __getitem__(self, key: object) -> str:
            assert isinstance(key, slice)
            return str.__getitem__(self, key)

        def __repr__(self) -> str:
            raise AssertionError("all of it was quoted")

    assert len(quoted(Counted("x" * 10**6))) < 200


def test_errors_of_the_protocol_quote_no_name_whole() -> None:
    for name in ("x" * 30_000, "\x07" * 30_000, "/" * 200):
        with pytest.raises(InvalidTopicError) as refused:
            check_topic_name(name)
        assert len(str(refused.value)) < 500
        assert str(refused.value).isprintable()
    with pytest.raises(LocalProtocolError) as unfit:
        encode_string("\ud800" * 1_000_000)
    assert len(str(unfit.value)) < 1000


def test_a_shell_splits_a_line_into_its_words() -> None:
    words = ["-x", "a b", "$(reboot)", "it's", "a\u202e'\\7", "\x1b[2J", "tö\u200b", "`id`;", ""]
    line = shell_line(["printf", "%s\\0", *words])
    assert line.isprintable()
    shown = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert shown.decode().split("\0")[:-1] == words
