"""scripts/quickstart as a newcomer runs it, in the environment that the tests run in."""

import os
import re
import select
import subprocess
import sys
import urllib.request
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "scripts" / "quickstart"


def environment(temporary: Path) -> dict[str, str]:
    """With a temporary directory of its own."""
    temporary.mkdir(exist_ok=True)
    own = {"HERMES_VENV": sys.prefix, "HERMES_INSTALLED": "1", "TMPDIR": str(temporary)}
    return os.environ | own


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run it with a temporary directory of its own, which must be empty again afterwards."""
    temporary = tmp_path / "tmp"
    ended = subprocess.run(
        [QUICKSTART, *arguments],
        cwd=tmp_path,
        env=environment(temporary),
        capture_output=True,
        timeout=240,
    )
    assert list(temporary.iterdir()) == []
    return ended


def test_made_up_events_and_a_console_to_look_at_them(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    with subprocess.Popen(
        [QUICKSTART, "--keep"],
        cwd=tmp_path,
        env=environment(temporary),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if "is the web console" in line:
                with urllib.request.urlopen(f"{line.split()[0]}topics/activity") as page:
                    assert b"<h1>activity</h1>" in page.read()
                process.terminate()
        assert process.wait(120) == 0
    text = "".join(told)
    assert "50000 messages came back, byte for byte" in text
    assert "00000000000000000000.log" in text
    assert "marked as clean" in text
    assert list(temporary.iterdir()) == []


def test_a_file_with_everything_that_lines_can_hold(tmp_path: Path) -> None:
    lines = [b"first", b"", b"", b"\x00\xff\xfe binary \r", "Ὀδύσσεια".encode(), b"x" * 1_500_000]
    (tmp_path / "-a log.txt").write_bytes(b"\n".join([*lines, b"no newline at the end \x00"]))
    ended = run(tmp_path, "./-a log.txt")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert b"7 messages came back, byte for byte" in ended.stdout


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    ended = run(tmp_path, "empty")
    assert ended.returncode == 1
    assert b"quickstart: empty holds no line to publish\n" in ended.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    ended = run(tmp_path, "nothing.log")
    assert ended.returncode == 1
    assert ended.stderr == b"quickstart: can't read nothing.log\n"
    assert ended.stdout == b""


def test_what_it_started_ends_when_it_is_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    with subprocess.Popen(
        [QUICKSTART], env=environment(temporary), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = (re.search(r"process (\d+) listens", line) for line in process.stdout)
        broker = os.pidfd_open(int(next(filter(None, told))[1]))
        process.kill()
        try:
            assert select.select([broker], [], [], 60)[0]
        finally:
            os.close(broker)
        process.stdout.read()  # the guard has its other end, until it is done
    assert list(temporary.iterdir()) == []
