"""What log lines are called, and which are written."""

import json
import re
from io import StringIO
from pathlib import Path

from twisted.logger import LogLevel

import hermes
from hermes.logs import ModuleLogger, log_observer


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
    log = ModuleLogger(observer=log_observer(file, "info", as_json=True))
    log.warn("{topic}: {error}", topic="a\x1b]0;b\nc", error=OSError("d\u202e"), places=[(1, 2)])
    line = json.loads(file.getvalue())
    assert line["message"] == r"a\x1b]0;b\nc: d\u202e"
    assert (line["topic"], line["error"], line["places"]) == (r"a\x1b]0;b\nc", r"d\u202e", [[1, 2]])


def test_json_has_what_the_message_was_made_from_and_nothing_of_twisted() -> None:
    file = StringIO()
    log = ModuleLogger(observer=log_observer(file, "info", as_json=True))
    log.info("logs in {log_dir}", log_dir="/var/lib/hermes")
    line = json.loads(file.getvalue())
    assert set(line) == {"time", "level", "logger", "message", "log_dir"}
    assert (line["message"], line["log_dir"]) == ("logs in /var/lib/hermes", "/var/lib/hermes")


def test_levels_below_the_least_are_left_out() -> None:
    file = StringIO()
    log = ModuleLogger(observer=log_observer(file, "warn", as_json=False))
    for level in LogLevel.iterconstants():
        log.emit(level, "{log_level.name} line")
    assert re.findall(r"(\w+) line", file.getvalue()) == ["warn", "error", "critical"]
