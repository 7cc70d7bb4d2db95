"""Lets a test fail that has written a planted secret, to its output or into a log."""

from collections.abc import Generator
from typing import Any

import pytest
from planted_secrets import leaks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[Any]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look through what was captured, once the test and its fixtures are done."""
    report = yield
    if report.when == "teardown" and report.outcome == "passed":
        found = [f"{name}: {leak}" for name, text in report.sections for leak in leaks(text)]
        if found:
            report.outcome = "failed"
            report.longrepr = "what the test has written shows a secret:\n" + "\n".join(found)
    return report
