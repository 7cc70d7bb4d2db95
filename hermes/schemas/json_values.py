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

Schemas are as `fastavro.parse_schema` returns them; `named` has their named types.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from hermes.quoting import quoted
from hermes.schemas.logical_types import converter

_INT_BITS: Final = {"int": 31, "long": 63}
_NUMBERS: Final = (int, float, Decimal)
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_to_value(text: bytes, schema: Any, named: Mapping[str, Any]) -> Any:
    """Read a value that somebody typed, for fastavro to write.

    Args:
        text: one JSON value.
        schema: its schema. Fields with a default may be missing.
        named: its named types.

    Raises:
        ValueError: it isn't JSON, or doesn't fit; the text names the field.
    """
    try:
        given = json.loads(text, parse_float=Decimal)
        return _Conversion(named, _typed).of(given, schema, "")
    except RecursionError:
        raise ValueError("the value is nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("the value is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None


def default_to_value(default: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """Turn a field's default, which a schema has as JSON, into what fastavro reads from bytes.

    Raises:
        ValueError: it doesn't fit the field.
    """
    return _Conversion(named, _read).of(default, schema, "")


def value_to_json(value: Any) -> bytes:
    """Write a value that fastavro has read as one line of JSON in UTF-8."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:  # NaN or an infinity, somewhere
        text = json.dumps(_without_infinities(value), ensure_ascii=False, default=_plain)
    return text.encode()


def _plain(value: object) -> Any:
    """What JSON has no word for."""
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
    """Converts JSON by a schema.

    Args:
        named: the schema's named types.
        finish: makes of a primitive, and its schema, what it stands for.
    """

    def __init__(
        self, named: Mapping[str, Any], finish: Callable[[Any, dict[str, Any]], Any]
    ) -> None:
        self._named = named
        self._finish = finish

    def of(self, value: Any, schema: Any, path: str) -> Any:
        if isinstance(schema, list):
            return self._union(value, schema, path)
        if isinstance(schema, str):
            schema = self._named.get(schema) or {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self._named:
            return self.of(value, kind, path)
        if kind in ("record", "error"):
            return self._record(value, schema, path)
        if kind == "array":
            if not isinstance(value, list):
                raise _misfit(path, "an array", value)
            return [self.of(each, schema["items"], f"{path}[{n}]") for n, each in enumerate(value)]
        if kind == "map":
            if not isinstance(value, dict):
                raise _misfit(path, "an object", value)
            return {
                name: self.of(each, schema["values"], _inner(path, name))
                for name, each in value.items()
            }
        try:
            return self._finish(value, schema)
        except (ArithmeticError, TypeError, ValueError) as error:
            what = f"{kind} ({schema['logicalType']})" if "logicalType" in schema else kind
            why = "" if isinstance(error, _MisfitError) else f" ({error})"
            raise _misfit(path, f"a value of type {what}", value, why) from None

    def _union(self, value: Any, branches: list[Any], path: str) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in branches:
                if name == self._name(branch) and name != "null":
                    return self.of(inner, branch, path)
        reasons = []
        for branch in branches:
            try:
                return self.of(value, branch, path)
            except ValueError as error:
                reasons.append(str(error))
        # What is wrong inside of the only branch that isn't null says more than that none fits.
        others = [reason for reason, each in zip(reasons, branches, strict=True) if each != "null"]
        if len(others) == 1:
            raise ValueError(others[0])
        names = ", ".join(self._name(branch) for branch in branches)
        raise _misfit(path, f"one of {names}", value)

    def _name(self, schema: Any) -> str:
        if isinstance(schema, str):
            return schema
        return str(schema.get("name") or schema["type"])

    def _record(self, value: Any, schema: Mapping[str, Any], path: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(path, f"an object, a {schema['name']}", value)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in value:
            if name not in fields:
                known = ", ".join(fields) or "none"
                raise ValueError(f"{_inner(path, name)}: no such field; there are {known}")
        found = {}
        for name, field in fields.items():
            if name not in value and "default" not in field:
                raise ValueError(f"{_inner(path, name)}: missing, and it has no default")
            given = value[name] if name in value else field["default"]
            found[name] = self.of(given, field["type"], _inner(path, name))
        return found


def _typed(value: Any, schema: dict[str, Any]) -> Any:
    """Read a primitive that somebody typed."""
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["type"] in ("bytes", "fixed"):
        return _decimal(value, schema)
    if isinstance(value, str) and schema["type"] in ("int", "long"):
        return _moment(value, logical)
    if logical == "uuid" and schema["type"] == "string" and isinstance(value, str):
        return str(UUID(value))
    return _primitive(value, schema)


def _read(value: Any, schema: dict[str, Any]) -> Any:
    """Read a primitive of a default, which is as in the binary encoding."""
    value = _primitive(value, schema)
    convert = converter(schema)
    return value if convert is None else convert(value, schema, None)


def _primitive(value: Any, schema: dict[str, Any]) -> Any:
    kind = schema["type"]
    if kind in _INT_BITS:
        if type(value) is int and -(1 << _INT_BITS[kind]) <= value < 1 << _INT_BITS[kind]:
            return value
    elif kind in ("float", "double"):
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
        if isinstance(value, _NUMBERS) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
    elif kind in ("bytes", "fixed"):
        data = value.encode("latin-1") if isinstance(value, str) else None
        if data is not None and (kind == "bytes" or len(data) == schema["size"]):
            return data
    elif kind == "enum":
        if value in schema["symbols"]:
            return value
    elif (
        (kind == "null" and value is None)
        or (kind == "boolean" and isinstance(value, bool))
        or (kind == "string" and isinstance(value, str))
    ):
        return value
    raise _MisfitError


def _decimal(value: Any, schema: Mapping[str, Any]) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        raise _MisfitError
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _MisfitError from None
    precision, scale = schema["precision"], schema.get("scale", 0)
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
    raise _MisfitError


class _MisfitError(ValueError):
    """A value is not of its type, and there is nothing more to say."""


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def _misfit(path: str, expected: str, value: Any, why: str = "") -> ValueError:
    shown = str(value) if isinstance(value, Decimal) else value
    where = f"{path}: " if path else ""
    return ValueError(f"{where}expected {expected}, got {quoted(shown)}{why}")
