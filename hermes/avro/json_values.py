"""Records as JSON, as people type and read them; and the defaults of readers' schemas.

    Avro                        JSON
    record, map                 object
    array                       array
    bytes, fixed                text whose characters U+0000 to U+00FF are the bytes
    float, double               number; "NaN", "Infinity", "-Infinity"
    decimal                     text, such as "12.50"; read from numbers too
    date, time-*, timestamp-*   text in ISO 8601; read from Avro's numbers too
    uuid, enum, string          text
    union                       the value as it is; read with the branch's name around it, too, as
                                Avro's own JSON has it: {"string": "me"}

Defaults have decimals and times as Avro's binary encoding does.
"""

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from hermes.avro.graph import RECORDS, AvroType, decimal_of
from hermes.avro.logical_types import logical_value
from hermes.avro.primitives import MisfitError, primitive_value
from hermes.quoting import quoted


def json_to_value(text: bytes, kind: AvroType) -> Any:
    """Read one JSON value that somebody typed, for fastavro to write.

    Fields with a default may be missing. Raises ValueError: it isn't JSON, or doesn't fit; the text
    names the field.
    """
    try:
        return _Conversion(_typed).of(json.loads(text, parse_float=Decimal), kind, "")
    except RecursionError:
        raise ValueError("the value is nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("the value is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None


def default_to_value(default: Any, kind: AvroType) -> Any:
    """As fastavro would have read it from bytes. ValueError: it doesn't fit the field."""
    return _Conversion(_read).of(default, kind, "")


def value_to_json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:  # NaN or an infinity, somewhere
        text = json.dumps(_without_infinities(value), ensure_ascii=False, default=_plain)
    return text.encode()


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_infinities(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


class _Conversion:
    """Converts JSON by a schema; `finish` converts primitive values."""

    def __init__(self, finish: Callable[[Any, AvroType], Any]) -> None:
        self._finish = finish

    def of(self, value: Any, kind: AvroType, path: str) -> Any:
        if kind.kind == "union":
            return self._union(value, kind.branches, path)
        if kind.kind in RECORDS:
            return self._record(value, kind, path)
        if kind.items is None:
            return self._primitive(value, kind, path)
        if kind.kind == "array":
            if not isinstance(value, list):
                raise _misfit(path, "an array", value)
            return [self.of(each, kind.items, f"{path}[{n}]") for n, each in enumerate(value)]
        if not isinstance(value, dict):
            raise _misfit(path, "an object", value)
        return {name: self.of(each, kind.items, _inner(path, name)) for name, each in value.items()}

    def _primitive(self, value: Any, kind: AvroType, path: str) -> Any:
        try:
            return self._finish(value, kind)
        except (ArithmeticError, TypeError, ValueError) as error:
            logical = kind.properties.get("logicalType")
            what = f"{kind.kind} ({logical})" if "logicalType" in kind.properties else kind.kind
            why = "" if isinstance(error, MisfitError) else f" ({error})"
            raise _misfit(path, f"a value of type {what}", value, why) from None

    def _union(self, value: Any, branches: tuple[AvroType, ...], path: str) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in branches:
                if name == branch.label and name != "null":
                    return self.of(inner, branch, path)
        reasons = []
        for branch in branches:
            try:
                return self.of(value, branch, path)
            except ValueError as error:
                reasons.append((str(error), branch))
        # What is wrong inside of the only branch that isn't null says more than that none fits.
        others = [reason for reason, branch in reasons if branch.kind != "null"]
        if len(others) == 1:
            raise ValueError(others[0])
        raise _misfit(path, f"one of {', '.join(branch.label for branch in branches)}", value)

    def _record(self, value: Any, kind: AvroType, path: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(path, f"an object, a {kind.name}", value)
        fields = {field.name: field for field in kind.fields}
        for name in value:
            if name not in fields:
                known = ", ".join(fields) or "none"
                raise ValueError(f"{_inner(path, name)}: no such field; there are {known}")
        found = {}
        for name, field in fields.items():
            if name not in value and not field.has_default:
                raise ValueError(f"{_inner(path, name)}: missing, and it has no default")
            given = value.get(name, field.default)
            found[name] = self.of(given, field.type, _inner(path, name))
        return found


def _typed(value: Any, kind: AvroType) -> Any:
    logical = kind.properties.get("logicalType")
    decimal = decimal_of(kind)
    if decimal is not None:
        return _decimal(value, *decimal)
    if isinstance(value, str) and kind.kind in ("int", "long"):
        return _moment(value, logical)
    if logical == "uuid" and kind.kind == "string" and isinstance(value, str):
        return str(UUID(value))
    return primitive_value(value, kind)


def _read(value: Any, kind: AvroType) -> Any:
    """Read a primitive of a default, which is as in the binary encoding."""
    return logical_value(primitive_value(value, kind), kind)


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        raise MisfitError
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise MisfitError from None
    # Before anything computes with it: an exponent of nine digits takes nine characters.
    if not number.is_finite() or (number and number.adjusted() >= precision - scale):
        raise ValueError(f"more than {precision - scale} digits before the point")
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > scale:
        raise ValueError(f"more than {scale} digits after the point")
    return number if number else Decimal(0)


def _moment(text: str, logical: str | None) -> Any:
    """Read a point in time; without a zone it is UTC, as the type says."""
    if logical == "date":
        return date.fromisoformat(text)
    if logical in ("time-millis", "time-micros"):
        return time.fromisoformat(text)
    if logical is not None and logical.startswith("timestamp-"):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if logical is not None and logical.startswith("local-timestamp-"):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo:
            raise ValueError("a local time has no zone")
        return moment
    raise MisfitError


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def _misfit(path: str, expected: str, value: Any, why: str = "") -> ValueError:
    shown = str(value) if isinstance(value, Decimal) else value
    where = f"{path}: " if path else ""
    return ValueError(f"{where}expected {expected}, got {quoted(shown)}{why}")
