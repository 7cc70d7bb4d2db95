"""Checks of what applications pass: one way to say what was expected, what came, what was meant.

Else a mistake would show as an AttributeError or a struct.error of the library's depths. Settings
that aren't one of a few texts are a ConfigError; everything else is an ArgumentError.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hermes.config.addresses import BrokerAddress, parse_broker
from hermes.config.units import parse_duration
from hermes.errors import ArgumentError, ConfigError
from hermes.protocol import EARLIEST, LATEST, FetchRequest
from hermes.quoting import quoted

_LONGEST_QUOTE: Final = 60
_LONGEST_WAIT_SECONDS: Final = 1e9

# What other systems call it.
_MEANT: Final[Mapping[str, Mapping[object, str]]] = {
    "acks": {"all": "flushed", -1: "flushed", "-1": "flushed", 1: "written", "1": "written",
             0: "none", "0": "none", "fsync": "flushed", "leader": "written"},
    "auto_offset_reset": {"earliest": "smallest", "latest": "largest", "none": "fail",
                          "error": "fail", "beginning": "smallest", "end": "largest"},
}  # fmt: skip
_TIMES: Final = {"earliest": "EARLIEST", "latest": "LATEST", "smallest": "EARLIEST",
                 "largest": "LATEST", "beginning": "EARLIEST", "end": "LATEST"}  # fmt: skip


def check_choice(key: str, value: object, choices: Sequence[str]) -> None:
    """Check a setting that is one of a few texts; the error says which may have been meant."""
    if isinstance(value, str) and value in choices:
        return
    close = difflib.get_close_matches(str(value).lower(), choices, n=1)
    try:
        meant = _MEANT.get(key, {}).get(value)
    except TypeError:  # not hashable
        meant = None
    meant = meant or (close[0] if close else None)
    hint = f"; did you mean {meant!r}?" if meant else ""
    expected = ", ".join(map(repr, choices))
    raise ConfigError(key, f"expected one of {expected}; got {_described(value)}{hint}")


def check_instance(name: str, value: object, kind: type, hint: str = "") -> None:
    """Check that an argument is of a class; the hint says what to do about a wrong one."""
    if not isinstance(value, kind):
        raise _wrong(name, f"a {kind.__name__}", value, hint)


def check_config(value: object, kind: type, brokers: str) -> None:
    """Check a configuration; who gives an address in its place is told which setting takes it."""
    hint = ""
    if isinstance(value, str):
        hint = f"did you mean {kind.__name__}({brokers}={quoted(value, _LONGEST_QUOTE)})?"
    check_instance("config", value, kind, hint)


def broker_address(host: object, port: object) -> BrokerAddress:
    """Read an address: the port is None if it stands in the host, or is the usual one."""
    if not isinstance(host, str):
        raise ConfigError("host", f"expected a name or an address, got {_described(host)}")
    if port is None:
        try:
            return parse_broker(host)
        except ValueError as error:
            raise ConfigError("host", str(error)) from None
    if type(port) is not int or not 0 < port < 65536:
        raise ConfigError("port", f"expected 1 to 65535, got {_described(port)}")
    if host.count(":") == 1:
        raise ConfigError("port", f"there is one in the host as well: {_described(host)}")
    return BrokerAddress(host, port)


def check_seconds(key: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigError(key, f"expected a number of seconds above 0, got {_described(value)}")
    _check_wait(key, value, value)


def seconds_of(key: str, value: object) -> float:
    """Read a setting that is a duration: a text ("500ms"), or a number of milliseconds."""
    if isinstance(value, str):
        try:
            seconds = parse_duration(value) / 1000
        except ValueError as error:
            raise ConfigError(key, str(error)) from error
        return _check_wait(key, value, seconds)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(key, f"expected '500ms' or milliseconds >= 0, got {_described(value)}")
    return _check_wait(key, value, value / 1000)


def _check_wait(key: str, value: object, seconds: float) -> float:
    """Refuse what the system's clocks can't wait for, as infinity."""
    if seconds > _LONGEST_WAIT_SECONDS:
        raise ConfigError(key, f"expected 31 years at most, got {_described(value)}")
    return seconds


def check_zookeeper_tls(value: object) -> None:
    if value is not None and value is not False:
        raise ConfigError(
            "zookeeper_tls", f"expected None (as the brokers) or False, got {_described(value)}"
        )


def check_topic(topic: object) -> None:
    """Check that a topic is a text; whether it can be a topic's name is another question."""
    if isinstance(topic, str):
        return
    hint = ""
    if isinstance(topic, bytes):
        hint = f"did you mean {quoted(topic.decode('utf-8', 'replace'), _LONGEST_QUOTE)}?"
    raise _wrong("topic", "a str", topic, hint)


def check_topics(topics: object) -> None:
    if isinstance(topics, str | bytes):
        raise _wrong(
            "topics", "a list of names, or None for all", topics, f"did you mean [{topics!r}]?"
        )
    if topics is not None:
        if not isinstance(topics, Iterable):
            raise _wrong("topics", "a list of names, or None for all", topics)
        for each in topics:
            check_topic(each)


def check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "a whole number", value)


def check_least(key: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigError(key, f"expected a whole number >= {least}, got {_described(value)}")


def check_partition(topic: object, partition: object) -> None:
    check_topic(topic)
    check_number("partition", partition)


def check_time(value: object) -> None:
    if isinstance(value, int) and not isinstance(value, bool):
        return
    meant = _TIMES.get(value.lower()) if isinstance(value, str) else None
    hint = f"did you mean hermes.{meant}?" if meant else ""
    raise _wrong("time", f"EARLIEST ({EARLIEST}), LATEST ({LATEST}) or ms since 1970", value, hint)


def check_fetch(request: object) -> None:
    if isinstance(request, list | tuple):
        raise _wrong("request", "one FetchRequest", request, "use multifetch for several")
    check_instance("request", request, FetchRequest)
    assert isinstance(request, FetchRequest)
    check_partition(request.topic, request.partition)
    check_number("offset", request.offset)
    check_number("max_size", request.max_size)


def check_fetches(requests: object) -> None:
    if isinstance(requests, FetchRequest) or not isinstance(requests, Sequence):
        hint = "did you mean [request]?" if isinstance(requests, FetchRequest) else ""
        raise _wrong("requests", "a list of FetchRequest", requests, hint)
    for each in requests:
        check_fetch(each)


def _wrong(name: str, expected: str, value: object, hint: str = "") -> ArgumentError:
    text = f"{name}: expected {expected}, got {_described(value)}"
    return ArgumentError(f"{text}; {hint}" if hint else text)


def _described(value: Any) -> str:
    return f"{quoted(value, _LONGEST_QUOTE)} ({type(value).__name__})"
