"""What Spark is told of an error: what is wrong, without the way through Hermes."""

import io
import traceback
from collections.abc import Iterator

import pytest
from pyspark.util import handle_worker_exception

from hermes.errors import ConfigError
from hermes.spark.plain_errors import plain_errors


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    try:
        raise ValueError("the cause")
    except ValueError as cause:
        raise ConfigError("topic", "is wrong") from cause


@plain_errors
def fails() -> None:
    deep(20)


@plain_errors
def yields() -> Iterator[int]:
    yield 1
    deep(20)


@plain_errors
def surprises() -> None:
    raise ZeroDivisionError


def test_what_is_expected_has_no_way_and_no_cause() -> None:
    with pytest.raises(ConfigError, match="topic: is wrong") as caught:
        fails()
    text = "".join(traceback.format_exception(caught.value))
    assert "deep" not in text
    assert "the cause" not in text


def test_that_holds_for_what_comes_while_rows_are_taken() -> None:
    rows = yields()
    assert next(rows) == 1
    with pytest.raises(ConfigError) as caught:
        next(rows)
    assert "deep" not in "".join(traceback.format_exception(caught.value))


def test_a_worker_tells_spark_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    assert b"Traceback" in told()
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    assert told() == b"hermes.errors.ConfigError: topic: is wrong\n"


def told() -> bytes:
    """What a worker whose function fails tells Spark: a mark, the length, and the text."""
    sent = io.BytesIO()
    try:
        fails()
    except ConfigError as error:
        handle_worker_exception(error, sent)
    return sent.getvalue()[8:]


def test_what_nobody_expected_keeps_its_way() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        surprises()
    assert "in surprises" in "".join(traceback.format_exception(caught.value))
