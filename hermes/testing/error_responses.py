"""The response to any Kafka request that says nothing but an error.

As Kafka's own `AbstractRequest.getErrorResponse` has it: the error is once at the top where the
response has a place for it there; otherwise once for each topic, partition, group or the like that
the request names.
"""

from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

__all__ = ["error_response"]

# Where an element of the response has another name for what the request's has.
_OTHER_NAMES = {"partition_index": "partition", "topic": "name", "name": "topic"}

# Of a Fetch: the client goes on without one.
_NO_SESSION = 0


def error_response(name: str, request: Any, code: Any) -> Any:
    """Make the response to a request that only says an error.

    Args:
        name: the request's, for instance `ListOffsets`.
        request: the decoded request.
        code: Kafka's error, as `kio` has it.

    Returns:
        The response of the request's version.
    """
    module = import_module(type(request).__module__.removesuffix("request") + "response")
    kind = getattr(module, f"{name}Response")
    # A client of a fetch session doesn't name partitions that it has named before.
    return _answer(kind, request, code, is_below=name == "Fetch" and bool(request.topics))


def _answer(kind: type, given: Any, code: Any, is_below: bool = False) -> Any:
    """Make a part of a response for a part of a request, which may be a mere name.

    Args:
        kind: the part's class.
        given: what it answers.
        code: the error.
        is_below: whether its own place for an error stays empty, since parts of it have one.
    """
    known: dict[str, Any] = {}
    hints = get_type_hints(kind)
    codes = {name: code for name in hints if _is_code(name)}
    is_below = is_below or not codes
    for name, hint in hints.items():
        element = _element(hint)
        if element is not None:
            if is_below and _says_errors(element):
                known[name] = tuple(_answer(element, each, code) for each in _named_by(given, name))
        elif isinstance(given, str | int):
            kind_of_name = str if isinstance(given, str) else int
            if _is_kind(hint, kind_of_name) and not _is_of_error(name):
                known[name], given = given, None
        elif (value := _value(given, name)) is not MISSING:
            known[name] = value
    if "session_id" in hints:
        known["session_id"] = _NO_SESSION
    return _blank(kind, known if is_below else known | codes)


def _named_by(given: Any, name: str) -> tuple[Any, ...]:
    """The request's counterpart of a response's array: that of the same name, or its first."""
    own = getattr(given, name, None)
    if isinstance(own, tuple):
        return own
    values = (getattr(given, each.name) for each in fields(given))
    return next((value for value in values if isinstance(value, tuple)), ())


def _value(given: Any, name: str) -> Any:
    if given is None or _is_of_error(name):
        return MISSING
    for each in (name, _OTHER_NAMES.get(name, name)):
        value = getattr(given, each, MISSING)
        if value is not MISSING and not isinstance(value, tuple):
            return value
    return MISSING


def _element(hint: Any) -> Any:
    """The element class of an array, if it is a message; None for anything else."""
    for each in _alternatives(hint):
        if get_origin(each) is tuple and is_dataclass(element := get_args(each)[0]):
            return element
    return None


def _says_errors(kind: Any) -> bool:
    hints = get_type_hints(kind)
    if any(map(_is_code, hints)):
        return True
    return any(_says_errors(each) for each in map(_element, hints.values()) if each is not None)


def _blank(kind: Any, known: dict[str, Any]) -> Any:
    """Make a message; what isn't known is its default, empty, or -1."""
    hints = get_type_hints(kind)
    values = {}
    for field in fields(kind):
        if field.name in known:
            values[field.name] = known[field.name]
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = _nothing(hints[field.name])
    return kind(**values)


def _nothing(hint: Any) -> Any:
    kinds = _alternatives(hint)
    if NoneType in kinds:
        return None
    kind = kinds[0]
    if get_origin(kind) is tuple:
        return ()
    if is_dataclass(kind):
        return _blank(kind, {})
    for least, value in (
        (bool, False),
        (str, ""),
        (bytes, b""),
        (timedelta, timedelta()),
        (datetime, datetime.fromtimestamp(0, UTC)),
        (UUID, UUID(int=0)),
        (float, 0.0),
    ):
        if issubclass(kind, least):
            return value
    return kind(0) if issubclass(kind, Enum) else -1


def _is_code(name: str) -> bool:
    return name.endswith("error_code")


def _is_of_error(name: str) -> bool:
    return name.startswith("error_") or _is_code(name)


def _is_kind(hint: Any, kind: type) -> bool:
    return any(isinstance(each, type) and issubclass(each, kind) for each in _alternatives(hint))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
