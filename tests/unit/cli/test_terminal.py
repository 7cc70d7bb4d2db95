import json
import sys

import pytest

from hermes.cli.terminal import (
    format_time_ms,
    harmless,
    note,
    progress,
    status,
    write_json,
    write_line,
    write_table,
)


def test_a_table_aligns_and_puts_numbers_to_the_right(capsys):
    write_table(("TOPIC", "PARTITION"), [("clicks", 0), ("a", 10), ("long-name", None)])
    assert capsys.readouterr().out == (
        "TOPIC      PARTITION\n"
        "clicks             0\n"
        "a                 10\n"
        "long-name          -\n"
    )  # fmt: skip


def test_an_empty_table_is_its_headings(capsys):
    write_table(("TOPIC", "PARTITION"), [])
    assert capsys.readouterr().out == "TOPIC  PARTITION\n"


def test_json_is_one_line(capsys):
    write_json({"topic": "ä\n"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"topic": "ä\n"}


def test_without_a_terminal_there_is_neither_status_nor_progress(capsys):
    status("working")
    with progress(10, "working") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


EVIL = "\x1b]0;pwned\x07\u202etxt\u200b"
SHOWN = r"\x1b]0;pwned\x07\u202etxt\u200b"


def test_names_obey_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_line(EVIL)
    write_table(("TOPIC", "PARTITION"), [(EVIL, 1)])
    line, headings, row = capsys.readouterr().out.splitlines()
    assert line == SHOWN
    assert row == f"{SHOWN}          1"
    assert len(headings) == len(row), "what is shown is aligned"


def test_a_file_or_a_pipe_gets_names_as_they_are(capsys):
    write_line(EVIL)
    write_table(("TOPIC",), [(EVIL,)])
    assert capsys.readouterr().out == f"{EVIL}\nTOPIC\n{EVIL}\n"


def test_a_note_is_one_plain_line(capsys):
    note(f"skipped {EVIL}\n{EVIL}")
    assert capsys.readouterr().err == f"hermes: skipped {SHOWN}\\n{SHOWN}\n"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain\ttext\nof two lines\n", b"plain\ttext\nof two lines\n"),
        ("Grüße 🙂".encode(), "Grüße 🙂".encode()),
        (b"\x1b[31mred\r\n", rb"\x1b[31mred\r" + b"\n"),
        (b"\xff\x00\x9b", rb"\xff\x00\x9b"),
        ("\x9b31m\u202e".encode(), rb"\x9b31m\u202e"),
        (b"", b""),
    ],
)
def test_payloads_for_a_terminal(data, shown):
    assert harmless(data) == shown


def test_a_time_is_written_in_utc_to_the_millisecond():
    assert format_time_ms(1431857103007) == "2015-05-17T10:05:03.007Z"
    assert format_time_ms(2**62) == str(2**62)
