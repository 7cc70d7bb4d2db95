"""The handler that logs failures."""

import logging

import pytest

from hermes.client import ProducerData
from hermes.errors import BrokerUnavailableError, ConfigError
from hermes.plugins.callbacks.failures import LogFailures


def test_a_failure_is_one_line(caplog) -> None:
    batch = [ProducerData("b", b"1"), ProducerData("a", b"2"), ProducerData("b", b"3")]
    LogFailures(level="WARNING").on_failure(batch, BrokerUnavailableError("gone"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "3 sends for 'a', 'b' failed: BrokerUnavailableError: gone"


def test_what_the_queue_refuses_is_logged_too(caplog) -> None:
    LogFailures().after_enqueue(ProducerData("a", b"1"), accepted=True)
    assert not caplog.records
    LogFailures(logger="mine").after_enqueue(ProducerData("a", b"1"), accepted=False)
    assert caplog.record_tuples == [
        ("mine", logging.ERROR, "not accepted for topic 'a': the queue is full")
    ]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="level"):
        LogFailures(level="LOUD")
