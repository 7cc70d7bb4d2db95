"""What values of Avro's logical types are in Python: as fastavro has it, but for decimals.

fastavro makes a decimal of any number of bytes: of a megabyte, that takes minutes. It also rounds
what has more digits than the schema says, and threads share the precision that it rounds to. So
decimals are read here, under a name of their own that fastavro is given.
"""

from decimal import Context, Decimal
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from hermes.avro.graph import AvroType, precision_and_scale

#: The logical type's name, and the one that fastavro gets in its place.
DECIMAL: Final = "decimal"
OWN_DECIMAL: Final = "hermes-decimal"

# A digit takes 0.42 bytes; a number may have more bytes than it needs.
_BYTES_PER_DIGIT: Final = 0.5
_MORE_BYTES: Final = 16
_MOST_DIGITS: Final = 10_000

_CONTEXT: Final = Context(prec=_MOST_DIGITS)


def logical_value(value: Any, kind: AvroType) -> Any:
    """Apply its logical type to a primitive or fixed value, read from its bytes."""
    logical = kind.properties.get("logicalType")
    name = OWN_DECIMAL if logical == DECIMAL else logical
    read: Any = LOGICAL_READERS.get(f"{kind.kind}-{name}")
    return value if read is None else read(value, kind.properties, None)


def _read_decimal(data: bytes, schema: Any, _: Any) -> Decimal | bytes:
    found = precision_and_scale(schema)
    if found is None:
        return data
    precision, scale = found
    digits = min(precision, _MOST_DIGITS)
    if len(data) > digits * _BYTES_PER_DIGIT + _MORE_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes for {precision} digits")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= 10**digits:
        raise ValueError(f"a decimal of more than {digits} digits")
    return Decimal(unscaled).scaleb(-scale, _CONTEXT)


for _kind in ("bytes", "fixed"):
    LOGICAL_READERS[f"{_kind}-{OWN_DECIMAL}"] = _read_decimal
