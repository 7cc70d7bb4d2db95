import errno

import click
import pytest

from hermes.cli.exit_codes import conclude
from hermes.errors import (
    BrokerUnavailableError,
    HermesError,
    NotAuthenticatedError,
    NotAuthorizedError,
    SchemaRegistryError,
)


def abort_after(cause):
    """The Abort that click makes of an interrupted prompt, or of a `no` when there is no cause."""
    try:
        if cause is None:
            raise click.Abort
        try:
            raise cause
        except (KeyboardInterrupt, EOFError):
            raise click.Abort from None
    except click.Abort as abort:
        return abort


def wrapped(cause):
    """An error that says more about where than its cause does."""
    error = HermesError(f"clicks 0: {cause}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BrokerUnavailableError("no connection to b:1"), 1, "hermes: no connection to b:1\n"),
        (HermesError(), 1, "hermes: HermesError\n"),
        (HermesError("two\nlines"), 1, "hermes: two lines\n"),
        (NotAuthenticatedError("b:1: wrong password"), 5, "hermes: b:1: wrong password\n"),
        (NotAuthorizedError("topic 'a'"), 5, "hermes: topic 'a'\n"),
        (wrapped(NotAuthorizedError("topic 'a'")), 5, "hermes: clicks 0: topic 'a'\n"),
        (wrapped(BrokerUnavailableError("b:1")), 1, "hermes: clicks 0: b:1\n"),
        (SchemaRegistryError("r: 401", status=401), 5, "hermes: r: 401\n"),
        (SchemaRegistryError("r: 422", status=422), 1, "hermes: r: 422\n"),
        (FileNotFoundError(errno.ENOENT, "Gone", "x.log"), 1, "hermes: x.log: Gone\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "hermes: No space left on device\n"),
        (click.UsageError("No such option '-x'."), 2, "hermes: No such option '-x'\n"),
        (abort_after(None), 1, "hermes: aborted: nothing was done\n"),
        (abort_after(EOFError()), 1, "hermes: aborted: nothing was done\n"),
        (abort_after(KeyboardInterrupt()), 130, ""),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (click.exceptions.Exit(1), 1, ""),
    ],
)  # fmt: skip
def test_each_ending_has_its_code_and_its_line(error, code, line, capsys):
    assert conclude(error) == code
    assert capsys.readouterr() == ("", line)


def test_a_fault_of_ours_is_one_line_too_and_says_how_to_see_more(capsys):
    assert conclude(KeyError("x")) == 1
    err = capsys.readouterr().err
    assert "please report it: KeyError: 'x' (HERMES_DEBUG=1 shows where)" in err
    assert err.count("\n") == 1


def test_debugging_shows_the_traceback_before_the_line(capsys, monkeypatch):
    monkeypatch.setenv("HERMES_DEBUG", "1")
    with pytest.raises(ValueError) as caught:
        raise ValueError("deep inside")
    assert conclude(caught.value) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "test_exit_codes.py" in err
