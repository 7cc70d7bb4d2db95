"""How `hermes.testing` ends a broker, and what it says of one that ended by itself."""

import os
import threading
from pathlib import Path

import pytest

from hermes.config.loading import parse_broker_config
from hermes.errors import HermesError
from hermes.storage.layout import CLEAN_SHUTDOWN_MARKER
from hermes.testing import _ReactorThread, running_broker

REASON = "the broker can't go on: its coordination is gone"


def a_broker(log_dir: Path) -> _ReactorThread:
    settings = {
        "broker_id": 0,
        "listen": "tcp:0:interface=127.0.0.1",
        "coordination": "none",
        "log_dir": str(log_dir),
        "ready_file": str(log_dir.with_name("ready")),
    }
    return _ReactorThread(parse_broker_config(settings, "settings"))


def give_up(thread: _ReactorThread) -> None:
    """Let a broker end by itself."""
    thread._reactor.callFromThread(thread.service.on_fatal, REASON)


def ended_by_itself(thread: _ReactorThread) -> bool:
    give_up(thread)
    thread._thread.join(60)
    return not thread._thread.is_alive()


def test_a_broker_that_ended_by_itself_says_why(tmp_path: Path) -> None:
    with pytest.raises(HermesError, match=REASON), a_broker(tmp_path / "logs") as thread:
        assert ended_by_itself(thread)
    assert (tmp_path / "logs" / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_test_that_fails_for_it_shows_both(tmp_path: Path) -> None:
    with pytest.raises(HermesError, match=REASON) as caught, a_broker(tmp_path / "logs") as thread:
        assert not ended_by_itself(thread), "no broker answers"
    assert isinstance(caught.value.__context__, AssertionError)


def test_a_broker_that_gives_up_while_its_test_ends_is_closed_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(HermesError, match=REASON), a_broker(tmp_path / "logs") as thread:
        give_up(thread)
    assert (tmp_path / "logs" / CLEAN_SHUTDOWN_MARKER).exists()
    assert not (tmp_path / "ready").exists()  # the last thing that a stop does


def test_a_test_on_a_busy_machine_asks_for_the_end_after_it(tmp_path: Path) -> None:
    """Whoever wakes the reactor may be held up until the reactor has done it, and ended."""
    thread = a_broker(tmp_path / "logs")
    wake_up, stopped = thread._reactor.waker.wakeUp, threading.Event()
    thread._reactor.addSystemEventTrigger("after", "shutdown", stopped.set)

    def held_up() -> None:
        descriptor = thread._reactor.waker.o
        if threading.current_thread() is not threading.main_thread():
            wake_up()
            return
        wake_up()  # something else does
        stopped.wait(60)
        thread._thread.join(60)
        os.write(descriptor, b"x")

    thread._reactor.waker.wakeUp = held_up
    with thread:
        pass
    assert (tmp_path / "logs" / CLEAN_SHUTDOWN_MARKER).exists()


def test_settings_that_are_wrong_leave_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(HermesError), running_broker(settings={"retention_policy": "none-such"}):
            pass
    assert len(os.listdir("/proc/self/fd")) < before + 10
