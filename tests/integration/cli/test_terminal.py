"""What shows on a terminal and nowhere else."""

import os
import pty
import select

import pytest
from storage_logs import write_segment

from hermes.protocol import encode_message_set


@pytest.fixture
def terminal():
    """A terminal: (the descriptor for a process's stderr, what arrives on the other side)."""
    screen, device = pty.openpty()
    closed = []

    def shown():
        """Everything that was written; the process must have ended."""
        os.close(device)
        closed.append(device)
        data = b""
        while select.select([screen], [], [], 60)[0]:
            try:
                chunk = os.read(screen, 65536)
            except OSError:  # nobody has the device open any more
                break
            if not chunk:
                break
            data += chunk
        return data.decode()

    yield device, shown
    os.close(screen)
    if not closed:
        os.close(device)


@pytest.mark.parametrize("quiet", [False, True])
def test_status_and_progress_show_on_a_terminal_unless_quiet(hermes, topic, terminal, quiet):
    device, shown = terminal
    options = ["-q"] if quiet else []
    producer = hermes.start("produce", "-t", topic, *options, stderr=device)
    producer.communicate(b"a\nb\n", timeout=60)
    consumer = hermes.start("consume", "-t", topic, "-e", *options, stderr=device)
    assert consumer.communicate(timeout=60)[0] == b"a\nb\n"
    text = shown()
    if quiet:
        assert text == ""
    else:
        assert f"hermes: 2 messages sent to {topic}" in text
        assert f"hermes: reading {topic}: partition 0 from 0" in text
        assert "100%" in text


def test_checking_shows_progress(hermes, topic, terminal, broker):
    hermes("produce", "-t", topic, stdin=b"a\n")
    device, shown = terminal
    check = hermes.start("check-log", broker.log_dir / f"{topic}-0", stderr=device)
    assert b"1 message" in check.communicate(timeout=60)[0]
    assert "100%" in shown()


PAYLOAD = b"\x1b]0;pwned\x07 \xe2\x80\xaetxt \xff"


def test_payloads_and_names_obey_no_terminal_and_are_exact_in_a_pipe(
    hermes, start_broker, terminal, tmp_path
):
    topic = "\u202eevil\u200b"  # as an older version has let it be made
    logs = tmp_path / "logs"
    write_segment(logs, encode_message_set([PAYLOAD]), partition=f"{topic}-0")
    at = ("-b", f"127.0.0.1:{start_broker(log_dir=str(logs)).port}")
    assert hermes("consume", *at, "-t", topic, "-e").stdout == PAYLOAD + b"\n"
    device, shown = terminal
    for arguments in (
        ("consume", *at, "-t", topic, "-e", "-q"),
        ("consume", *at, "-t", topic, "-e", "-q", "-f", "%t: %s\\n"),
        ("topics", "list", *at),
    ):
        hermes.start(*arguments, stdout=device).communicate(timeout=60)
    text = shown()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count(r"\x1b]0;pwned\x07 \u202etxt \xff") == 2
    assert text.count(r"\u202eevil\u200b") == 2
