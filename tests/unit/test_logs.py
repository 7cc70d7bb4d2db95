"""What log lines are called, and which are written."""

import gc
import json
import re
import threading
import time
from io import StringIO
from pathlib import Path

from twisted.logger import LogLevel

import hermes
from hermes.logs import LogLevels, LogOutput, ModuleLogger, RecentLines

INFO = LogLevels("info", {})


class Base:
    log = ModuleLogger()


class Elsewhere(Base):
    __module__ = "some.other.module"


def test_a_line_names_the_module_whatever_class_inherits_the_logger() -> None:
    assert Base.log.namespace == Base().log.namespace == __name__
    assert Elsewhere().log.namespace == __name__


def test_no_class_has_a_logger_whose_name_twisted_would_change() -> None:
    for path in Path(hermes.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^    \w+ = Logger\(", text, re.MULTILINE), path


def test_no_value_of_a_line_is_obeyed_by_a_terminal() -> None:
    file = StringIO()
    log = ModuleLogger(observer=LogOutput(file, INFO, as_json=True))
    log.warn("{topic}: {error}", topic="a\x1b]0;b\nc", error=OSError("d\u202e"), places=[(1, 2)])
    line = json.loads(file.getvalue())
    assert line["message"] == r"a\x1b]0;b\nc: d\u202e"
    assert (line["topic"], line["error"], line["places"]) == (r"a\x1b]0;b\nc", r"d\u202e", [[1, 2]])


def test_json_has_what_the_message_was_made_from_and_nothing_of_twisted() -> None:
    file = StringIO()
    log = ModuleLogger(observer=LogOutput(file, INFO, as_json=True))
    log.info("logs in {log_dir}", log_dir="/var/lib/hermes")
    line = json.loads(file.getvalue())
    assert set(line) == {"time", "level", "logger", "message", "log_dir"}
    assert (line["message"], line["log_dir"]) == ("logs in /var/lib/hermes", "/var/lib/hermes")


def test_levels_below_the_least_are_left_out() -> None:
    file = StringIO()
    log = ModuleLogger(observer=LogOutput(file, LogLevels("warn", {}), as_json=False))
    for level in LogLevel.iterconstants():
        log.emit(level, "{log_level.name} line")
    assert re.findall(r"(\w+) line", file.getvalue()) == ["warn", "error", "critical"]


def test_a_module_may_have_a_level_of_its_own() -> None:
    levels = LogLevels("warn", {"hermes.broker": "debug", "hermes.partition.flushing": "error"})
    assert levels.lowest == "debug"

    def logged(module: str) -> list[str]:
        file = StringIO()
        log = ModuleLogger(module, observer=LogOutput(file, levels, as_json=False))
        for level in LogLevel.iterconstants():
            log.emit(level, "{log_level.name} line")
        return re.findall(r"(\w+) line", file.getvalue())

    assert logged("hermes.broker.service") == ["debug", "info", "warn", "error", "critical"]
    assert logged("hermes.partition.flushing") == ["error", "critical"]
    assert logged("hermes.brokers") == ["warn", "error", "critical"]
    levels.use("critical", {})
    assert levels.lowest == "critical"
    assert logged("hermes.broker.service") == ["critical"]


def test_the_format_may_be_changed() -> None:
    file = StringIO()
    output = LogOutput(file, INFO, as_json=False)
    log = ModuleLogger(observer=output)
    log.info("one")
    output.as_json = True
    log.info("two")
    text, line = file.getvalue().splitlines()
    assert text.endswith(" one")
    assert json.loads(line)["message"] == "two"


def test_the_last_lines_are_kept_numbered_and_short() -> None:
    recent = RecentLines(INFO, max_lines=3)
    log = ModuleLogger("some.module", observer=recent)
    assert recent.lines(-1, 10) == (0, [])
    for number in range(5):
        log.info("line {number}", number=number)
        log.debug("left out")
    first, lines = recent.lines(-1, 10)
    assert (first, [each.message for each in lines]) == (2, ["line 2", "line 3", "line 4"])
    assert (lines[0].level, lines[0].logger) == ("info", "some.module")
    assert 0 <= time.time() - lines[0].time_ms / 1000 < 600
    assert [each.message for each in recent.lines(-1, 1)[1]] == ["line 4"]
    assert recent.lines(0, 1) == (2, lines[:1])
    assert recent.lines(4, 10) == (4, lines[2:])
    assert recent.lines(5, 10) == recent.lines(2**62, 10) == (5, [])
    assert recent.lines(-1, -1) == (5, [])
    try:
        raise OSError("x" * 1000 + "\n")
    except OSError:
        log.failure("it failed\n")
    ((_, level, _, message),) = recent.lines(5, 1)[1]
    assert level == "critical"
    assert message.startswith(r"it failed\n: xxx")
    assert len(message) < 550


def test_a_garbage_collection_may_log_while_lines_are_looked_up() -> None:
    """Of a Deferred whose failure nobody has heard of it does, in whatever thread it begins."""
    recent = RecentLines(INFO)
    log = ModuleLogger(observer=recent)
    looks = threading.local()
    looks.is_free = False  # in this thread

    def collected(phase: str, info: object) -> None:
        if getattr(looks, "is_free", False):
            looks.is_free = False
            log.warn("unhandled")
            looks.is_free = True

    def look() -> None:
        for _ in range(100):
            looks.is_free = True
            recent.lines(-1, 10)
            looks.is_free = False

    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    looking = threading.Thread(target=look, daemon=True)
    try:
        looking.start()
        looking.join(60)
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*thresholds)
    assert not looking.is_alive()
    assert recent.lines(-1, 1)[1][0].message == "unhandled"
