"""What Spark is told of an error: what is wrong, without the way through Hermes."""

import traceback
from collections.abc import Iterator

import pytest

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


def test_what_nobody_expected_keeps_its_way() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        surprises()
    assert "in surprises" in "".join(traceback.format_exception(caught.value))
