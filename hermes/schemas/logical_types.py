"""What values of Avro's logical types are in Python: as fastavro has it, but for decimals.

fastavro makes a decimal of any number of bytes: of a megabyte, that takes minutes. It also rounds
what has more digits than the schema says, and threads share the precision that it rounds to. So
decimals are read here, under a name of their own that fastavro is given.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

#: The logical type's name, and what fastavro is told in its place.
DECIMAL: Final = "decimal"
OWN_DECIMAL: Final = "hermes-decimal"

# A digit takes 0.42 bytes; a number may have more bytes than it needs.
_BYTES_PER_DIGIT: Final = 0.5
_MORE_BYTES: Final = 16
_MOST_DIGITS: Final = 10_000

_CONTEXT: Final = Context(prec=_MOST_DIGITS)


def converter(schema: dict[str, Any]) -> Callable[[Any, Any, Any], Any] | None:
    """The function, with fastavro's arguments, from what a primitive's bytes say to its value.

    Args:
        schema: a primitive or fixed type; "type" is its name.

    Returns:
        None if it stays what it is.
    """
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == DECIMAL and kind in ("bytes", "fixed"):
        return _read_decimal
    found: Callable[[Any, Any, Any], Any] | None = LOGICAL_READERS.get(f"{kind}-{logical}")
    return found


def _read_decimal(data: bytes, schema: Any, _: Any) -> Decimal:
    precision, scale = schema["precision"], schema.get("scale", 0)
    digits = min(precision, _MOST_DIGITS)
    if len(data) > digits * _BYTES_PER_DIGIT + _MORE_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes for {precision} digits")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10**digits:
        raise ValueError(f"a decimal of more than {digits} digits")
    return Decimal(unscaled).scaleb(-scale, _CONTEXT)


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{OWN_DECIMAL}"] = _read_decimal
