"""What the composition root does with lines of modules that don't know Twisted."""

import logging
from io import StringIO

from twisted.logger import globalLogPublisher

from hermes.logs import LogLevels, LogOutput
from hermes.tap import _ToTwisted


def test_a_line_of_standard_logging_keeps_its_traceback() -> None:
    file, log = StringIO(), logging.getLogger("hermes.test_tap")
    output, handler = LogOutput(file, LogLevels("info", {}), as_json=False), _ToTwisted()
    log.addHandler(handler)
    globalLogPublisher.addObserver(output)
    try:
        log.warning("as they were: %s", "why", exc_info=ValueError("why"))
        log.warning("without one")
    finally:
        globalLogPublisher.removeObserver(output)
        log.removeHandler(handler)
    first, *traceback, last = file.getvalue().splitlines()
    assert first.endswith("[hermes.test_tap#warn] as they were: why")
    assert any("builtins.ValueError: why" in line for line in traceback)
    assert last.endswith("[hermes.test_tap#warn] without one")
