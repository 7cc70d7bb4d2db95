"""Which JSON values are values of Avro's types without parts.

    null, boolean, string, enum    as they are
    int, long                      a whole number that fits
    float, double                  a number; "NaN", "Infinity", "-Infinity"
    bytes, fixed                   text whose characters U+0000 to U+00FF are the bytes

So defaults are written in schemas, and values by people.
"""

import math
from decimal import Decimal
from typing import Any, Final

from hermes.avro.graph import AvroType

_INT_BITS: Final = {"int": 31, "long": 63}
_NUMBERS: Final = (int, float, Decimal)
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON_TYPES: Final = {"null": type(None), "boolean": bool, "string": str}


class MisfitError(ValueError):
    """A value is not of its type, and there is nothing more to say."""


def primitive_value(value: Any, kind: AvroType) -> Any:
    """Read a value of a type that has no parts, as fastavro writes it.

    Raises ValueError: it isn't one; OverflowError: a whole number that no double holds.
    """
    match kind.kind:
        case "int" | "long" as name:
            if type(value) is int and -(1 << _INT_BITS[name]) <= value < 1 << _INT_BITS[name]:
                return value
        case "float" | "double":
            if isinstance(value, str) and value in _WORDS:
                return _WORDS[value]
            if isinstance(value, _NUMBERS) and not isinstance(value, bool):
                number = float(value)
                if math.isfinite(number):
                    return number
        case "bytes" | "fixed":
            data = value.encode("latin-1") if isinstance(value, str) else None
            if data is not None and (kind.kind == "bytes" or len(data) == kind.size):
                return data
        case "enum":
            if isinstance(value, str) and value in kind.symbols:
                return value
        case name:
            if isinstance(value, _PYTHON_TYPES[name]):
                return value
    raise MisfitError
