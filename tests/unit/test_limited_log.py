"""Log lines that a peer can cause."""

from broker_bench import log_lines
from twisted.logger import Logger
from twisted.python.failure import Failure

from hermes.limited_log import LimitedLog


def test_a_flood_is_a_few_lines_and_a_count() -> None:
    now = [0.0]
    limited = LimitedLog(Logger(namespace="here"), lambda: now[0])
    with log_lines() as lines:
        for _ in range(1000):
            limited.warn("bad", "{peer} is bad", peer="p")
        now[0] = 10.0
        limited.warn("bad", "{peer} is bad", peer="p")
    assert len(lines) == 6
    assert "suppressed" not in lines[0]
    assert lines[-1].endswith("p is bad (995 more such lines suppressed)")


def test_no_value_forges_a_line_or_fills_the_log() -> None:
    limited = LimitedLog(Logger(namespace="here"), lambda: 0.0)
    with log_lines() as lines:
        limited.error(
            "bad", "{topic}: {error}", topic="a\n[x#critical] \x1b[2J", error="y" * 100_000
        )
    (line,) = lines
    assert "\\n[x#critical] \\x1b[2J" in line
    assert line.isprintable()
    assert len(line) < 500


def test_numbers_stay_numbers_and_faults_have_their_traceback() -> None:
    limited = LimitedLog(Logger(namespace="here"), lambda: 0.0)
    with log_lines() as lines:
        limited.info("work", "did {count:d}", count=7)
        try:
            raise ValueError("unexpected")
        except ValueError:
            limited.failure("fault", "serving {peer} failed", Failure(), peer="p")
    assert lines[0].endswith("did 7")
    assert "serving p failed" in lines[1]
    assert "ValueError: unexpected" in lines[1]
