import json

import pytest

from hermes.cli.terminal import format_bytes, progress, status, write_json, write_table


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


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")],
)
def test_bytes_for_people(count, text):
    assert format_bytes(count) == text
