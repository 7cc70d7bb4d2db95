"""The kinds of value that a setting can have: how each is parsed, checked and shown.

A kind turns what YAML gave (a string, a number, a list, ...) into the value that the program uses,
or says in one sentence what was expected. Knows no setting by name, no file and no Twisted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from hermes.config.units import format_duration, format_size, parse_duration, parse_size
from hermes.quoting import quoted

UNLIMITED = "unlimited"

#: The most partitions of a topic on a broker. Clients accept no larger number from a broker or from
#: ZooKeeper: partitions cost memory before any is used.
MAX_PARTITIONS = 10_000
INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Kind:
    """How a kind of value is parsed and shown.

    Attributes:
        name: what the reference calls it, for instance "size".
        parse: turns a YAML value into ours; raises ValueError with "expected ..., got ...".
        show: turns ours into what a person would write in broker.yaml.
        words: all possible values, where these are a few words.
    """

    name: str
    parse: Callable[[object], Any]
    show: Callable[[Any], str] = str
    words: tuple[str, ...] = ()


def whole_number(minimum: int, maximum: int = _INT64_MAX) -> Kind:
    wanted = f"whole number >= {minimum}"
    name = wanted if maximum >= INT32_MAX else f"whole number from {minimum} to {maximum}"

    def upper_bound(value: object) -> str:
        is_shown = maximum != _INT64_MAX or (isinstance(value, int) and value > maximum)
        return f" and <= {maximum}" if is_shown else ""

    def parse(value: object) -> int:
        # bool is an int to Python, but `partitions: true` is a mistake.
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
            return value
        raise ValueError(f"expected a {wanted}{upper_bound(value)}, got {quoted(value)}")

    return Kind(name, parse)


def size(minimum: int = 1, maximum: int = _INT64_MAX) -> Kind:
    """A number of bytes within [minimum, maximum]."""

    def parse(value: object) -> int:
        size_bytes = parse_size(value)
        if not minimum <= size_bytes <= maximum:
            limits = f">= {format_size(minimum)}"
            if maximum != _INT64_MAX or size_bytes > maximum:
                limits += f" and <= {maximum}"
            raise ValueError(f"expected a size {limits}, got {quoted(value)}")
        return size_bytes

    return Kind("size", parse, format_size)


def duration(minimum_ms: int = 0) -> Kind:
    """A number of milliseconds >= minimum_ms."""

    def parse(value: object) -> int:
        duration_ms = parse_duration(value)
        if duration_ms > _INT64_MAX:
            raise ValueError(f"expected at most {_INT64_MAX} ms, got {quoted(value)}")
        if duration_ms < minimum_ms:
            raise ValueError(
                f"expected at least {format_duration(minimum_ms)}, got {quoted(value)}"
            )
        return duration_ms

    return Kind("duration", parse, format_duration)


def unlimited_or(kind: Kind) -> Kind:
    """Also accepts the word `unlimited`, which becomes None."""

    def parse(value: object) -> Any:
        if value == UNLIMITED:
            return None
        try:
            return kind.parse(value)
        except ValueError as error:
            raise ValueError(f"{error} (or {UNLIMITED})") from None

    def show(value: Any) -> str:
        return UNLIMITED if value is None else kind.show(value)

    return Kind(f"{kind.name} or `{UNLIMITED}`", parse, show)


def optional(kind: Kind, absent: str) -> Kind:
    """Also accepts YAML's null, which becomes None; `absent` says what that means."""

    def parse(value: object) -> Any:
        return None if value is None else kind.parse(value)

    def show(value: Any) -> str:
        return absent if value is None else kind.show(value)

    return Kind(kind.name, parse, show)


def choice(*words: str) -> Kind:
    listed = ", ".join(words[:-1]) + f" or {words[-1]}"

    def parse(value: object) -> str:
        if value in words:
            return str(value)
        raise ValueError(f"expected {listed}, got {quoted(value)}")

    return Kind(" or ".join(f"`{word}`" for word in words), parse, words=words)


def choices(*words: str) -> Kind:
    """A list of some of a few words, each once, best first; not empty."""
    listed = ", ".join(words[:-1]) + f" or {words[-1]}"

    def parse(value: object) -> tuple[str, ...]:
        given = value if isinstance(value, list) else [value]
        if given and all(each in words for each in given) and len(set(given)) == len(given):
            return tuple(given)
        raise ValueError(f"expected a list of {listed}, each once, got {quoted(value)}")

    name = "a list of " + " or ".join(f"`{word}`" for word in words)
    return Kind(name, parse, ", ".join)


#: The formats of logs: see `hermes.storage.log_format`.
FORMAT_0_7 = "0.7"
FORMAT_KAFKA = "kafka"


def _parse_log_format(value: object) -> str:
    # YAML takes 0.7 for a number.
    if value in (FORMAT_0_7, 0.7) and not isinstance(value, bool):
        return FORMAT_0_7
    if value == FORMAT_KAFKA:
        return FORMAT_KAFKA
    raise ValueError(f"expected {FORMAT_0_7} or {FORMAT_KAFKA}, got {quoted(value)}")


LOG_FORMAT = Kind(f"`{FORMAT_0_7}` or `{FORMAT_KAFKA}`", _parse_log_format)


def _parse_truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, got {quoted(value)}")


def _parse_text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(f"expected a string, got {quoted(value)}")


#: A host with or without a port; an IPv6 literal is in brackets.
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


def _parse_ensemble(value: object) -> str:
    text = _parse_text(value)
    hosts, slash, chroot = text.partition("/")
    for each in hosts.split(","):
        match = _HOST_AND_PORT.fullmatch(each.strip())
        if match is None or not 1 <= int(match[1] or 2181) <= 65535:
            raise ValueError(f"expected host:port,host:port/chroot, got {quoted(value)}")
    if "," in chroot or (chroot.strip("/") and "//" in slash + chroot):
        raise ValueError(f"expected one chroot, after all hosts, got {quoted(value)}")
    return text


def _parse_path(value: object) -> Path:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return Path(value).expanduser()
    raise ValueError(f"expected a path, got {quoted(value)}")


_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _parse_host(value: object) -> str:
    # 0.7's clients split a registered broker's address at every colon.
    if isinstance(value, str) and _HOST_NAME.fullmatch(value):
        return value
    raise ValueError(f"expected a host name or an IPv4 address, got {quoted(value)}")


def _parse_hosts(value: object) -> tuple[str, ...]:
    hosts = value if isinstance(value, list) else [value]
    for host in hosts:
        if not isinstance(host, str) or not (_is_address(host) or _HOST_NAME.fullmatch(host)):
            raise ValueError(
                f"expected a host name or an address without a port, or a list of them, "
                f"got {quoted(host)}"
            )
    return tuple(hosts)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _show_hosts(value: tuple[str, ...]) -> str:
    return ", ".join(value) or "none"


def _parse_options(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"expected a mapping, got {quoted(value)}")


LOG_LEVELS = ("debug", "info", "warn", "error", "critical")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


def _parse_module_levels(value: object) -> Mapping[str, str]:
    expected = f"expected modules with levels such as hermes.partition.flushing: {LOG_LEVELS[0]}"
    if not isinstance(value, Mapping):
        raise ValueError(f"{expected}, got {quoted(value)}")
    for module, level in value.items():
        if not _MODULE.fullmatch(str(module)):
            raise ValueError(f"{expected}, got {quoted(module)}")
        if level not in LOG_LEVELS:
            levels = f"{', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}"
            raise ValueError(f"expected {levels} for {module}, got {quoted(level)}")
    return dict(value)


def _show_module_levels(value: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{module}: {level}" for module, level in value.items()) + "}"


MODULE_LEVELS = Kind("modules and levels", _parse_module_levels, _show_module_levels)
TRUTH = Kind("`true` or `false`", _parse_truth, lambda value: str(value).lower())
TEXT = Kind("string", _parse_text)
ENSEMBLE = Kind("hosts and ports", _parse_ensemble)
PATH = Kind("path", _parse_path)
HOST = Kind("host name or IPv4 address", _parse_host)
HOSTS = Kind("host name or address, or a list of them", _parse_hosts, _show_hosts)
COUNT = whole_number(1)
PARTITION_COUNT = whole_number(1, MAX_PARTITIONS)
RETAINED_TIME = unlimited_or(duration(1))
RETAINED_BYTES = unlimited_or(size(0))
OPTIONS = Kind("mapping", _parse_options, lambda value: repr(dict(value)))
#: What may hold secrets: only what they are called is ever shown.
SECRET_OPTIONS = Kind(
    "mapping", _parse_options, lambda value: ", ".join(f"{key}: ***" for key in value) or "none"
)
