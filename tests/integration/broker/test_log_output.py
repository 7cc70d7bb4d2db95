"""Where the log of a real `twistd` goes, at which level, and what SIGUSR1 does to it."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

TWISTD = Path(sys.executable).with_name("twistd")
DEADLINE_SECONDS = 60.0


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between two looks; nothing tells
    return found


class Twistd:
    """Brokers started with twistd's own options, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pids: list[int] = []

    def start(self, *options: str, **settings: Any) -> int:
        """Start one, and wait until it is ready; its process."""
        config = {
            "broker_id": 0,
            "listen": "tcp:0:interface=127.0.0.1",
            "coordination": "none",
            "log_dir": "logs",
            "ready_file": "ready.json",
            **settings,
        }
        (self.directory / "broker.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        with open(self.directory / "output", "wb") as output:
            self._process = subprocess.Popen(
                [TWISTD, *options, "hermes", "--config", "broker.yaml"],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        ready = self.directory / "ready.json"
        pid: int = json.loads(wait_for(lambda: ready.exists() and ready.read_bytes()))["pid"]
        self._pids.append(os.pidfd_open(pid))
        return pid

    def stop(self) -> None:
        for descriptor in self._pids:
            with open(descriptor, "rb"):
                try:
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                except ProcessLookupError:
                    continue
                assert select.select([descriptor], [], [], DEADLINE_SECONDS)[0]
        self._pids.clear()
        self._process.wait(DEADLINE_SECONDS)

    def events(self, name: str) -> list[dict[str, Any]]:
        text = (self.directory / name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def twistd(tmp_path: Path) -> Iterator[Twistd]:
    started = Twistd(tmp_path)
    yield started
    started.stop()


def messages(events: list[dict[str, Any]]) -> list[str]:
    return [event["message"] for event in events]


@pytest.mark.parametrize("options", [("-n", "--pidfile="), ("--pidfile=the.pid",)], ids=repr)
def test_json_goes_to_the_log_file_and_sigusr1_begins_a_new_one(
    twistd: Twistd, options: tuple[str, ...]
) -> None:
    pid = twistd.start(*options, "--logfile=the.log", log_format="json")
    os.kill(pid, signal.SIGUSR1)
    wait_for((twistd.directory / "the.log.1").exists)
    twistd.stop()
    before, after = twistd.events("the.log.1"), twistd.events("the.log")
    (ready,) = (event for event in before if "is ready" in event["message"])
    assert ready["logger"] == "hermes.broker.service"
    assert "broker 0 has stopped" in messages(after)
    assert (twistd.directory / "output").read_bytes() == b""


def test_a_daemon_without_a_log_file_writes_twistd_log(twistd: Twistd) -> None:
    twistd.start("--pidfile=the.pid", log_format="json")
    twistd.stop()
    assert "broker 0 has stopped" in messages(twistd.events("twistd.log"))


def test_text_is_rotated_as_well(twistd: Twistd) -> None:
    pid = twistd.start("-n", "--pidfile=", "--logfile=the.log")
    os.kill(pid, signal.SIGUSR1)
    wait_for((twistd.directory / "the.log.1").exists)
    twistd.stop()
    assert "[hermes.broker.service#info] broker 0 is ready" in (
        twistd.directory / "the.log.1"
    ).read_text(encoding="utf-8")


def test_a_file_is_rotated_by_its_size_and_the_oldest_are_deleted(twistd: Twistd) -> None:
    logfile = ("-n", "--pidfile=", "--logfile=the.log")
    twistd.start(*logfile, log_format="json", log_rotate_bytes=100, log_keep_files=2)
    twistd.stop()
    assert sorted(path.name for path in twistd.directory.glob("the.log*")) == [
        "the.log",
        "the.log.1",
        "the.log.2",
    ]
    assert messages(twistd.events("the.log.1"))


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_sigusr1_does_nothing_to_a_log_on_standard_output(twistd: Twistd, log_format: str) -> None:
    pid = twistd.start("-n", "--pidfile=", log_format=log_format)
    os.kill(pid, signal.SIGUSR1)
    twistd.stop()
    output = (twistd.directory / "output").read_text(encoding="utf-8")
    assert "broker 0 has stopped" in output


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_lines_below_the_level_are_left_out(twistd: Twistd, log_format: str) -> None:
    (twistd.directory / "logs" / "strange").mkdir(parents=True)
    twistd.start("-n", "--pidfile=", log_format=log_format, log_level="warn")
    twistd.stop()
    (line,) = (twistd.directory / "output").read_text(encoding="utf-8").splitlines()
    assert "strange is not part of a log" in line


def test_a_daemon_cant_log_to_standard_output(tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text("broker_id: 0\nlog_dir: logs\n", encoding="utf-8")
    ended = subprocess.run(
        [TWISTD, "--logfile=-", "hermes", "--config", "broker.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("hermes: a daemon can't log to standard output")


def test_a_start_that_fails_leaves_no_pid_file(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "broker.yaml").write_text(
        "broker_id: 0\nlog_dir: logs\ncoordination: none\nlisten: tcp:0:interface=192.0.2.1\n"
        "allow_insecure: true\n",
        encoding="utf-8",
    )
    ended = subprocess.run(
        [TWISTD, "-n", "hermes", "--config", "broker.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ended.returncode == 1
    assert "can't open 'tcp:0:interface=192.0.2.1'" in ended.stdout + ended.stderr
    assert not (tmp_path / "twistd.pid").exists()


def test_a_broker_whose_terminal_is_closed_stops(tmp_path: Path) -> None:
    config = "broker_id: 0\nlog_dir: logs\ncoordination: none\nlisten: tcp:0:interface=127.0.0.1\n"
    (tmp_path / "broker.yaml").write_text(config + "ready_file: ready.json\n", encoding="utf-8")
    ours, its = pty.openpty()
    with open(ours, "rb"), open(its, "rb") as terminal:
        process = subprocess.Popen(
            ["setsid", "--ctty", TWISTD, "-n", "--pidfile=", "hermes", "--config", "broker.yaml"],
            cwd=tmp_path,
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for((tmp_path / "ready.json").exists)
        except BaseException:
            process.kill()
            raise
    process.wait(DEADLINE_SECONDS)
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
