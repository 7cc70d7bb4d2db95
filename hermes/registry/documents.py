"""JSON from anybody: read within limits, written in one way."""

import json
from collections import Counter
from math import isinf
from typing import Any, Final, NoReturn

from hermes.quoting import quoted
from hermes.registry.limits import MAX_DEPTH, MAX_VALUES

# Python's own limit is 4300, and is the process's to change.
_MOST_DIGITS: Final = 1000


def read_document(text: str | bytes) -> Any:
    """Read JSON; bytes are UTF-8.

    Raises ValueError: it isn't JSON by RFC 8259, gives a key twice, or is nested or larger beyond
    the limits; the text says which.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_whole_number,
            parse_float=_number,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8, from byte {error.start} on") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it is not JSON: {error.msg} at {where}") from None
    _check_size(value)
    if "\\ud" in text.lower():
        try:
            write_document(value).encode()
        except UnicodeEncodeError:
            raise ValueError("it escapes half of a surrogate pair") from None
    return value


def write_document(value: Any, *, sort_keys: bool = False) -> str:
    """Write JSON without spaces; the same value always gives the same text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = Counter(name for name, _ in pairs)
        twice = next(name for name in left if left[name] > 1)
        raise ValueError(f"the key {quoted(twice)} is given twice in one object")
    return found


def _whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {quoted(text)} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_size(value: Any) -> None:
    """Walk level by level, since recursion is the danger."""
    count, level = 0, [value]
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values")
        level = [
            child
            for each in level
            if isinstance(each, list | dict)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
