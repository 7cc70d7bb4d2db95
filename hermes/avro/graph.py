"""An Avro schema as a graph of types, with a cycle where a record contains itself.

Source: the Avro specification 1.12, "Schema Declaration".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
RECORDS: Final = frozenset(("record", "error"))
NAMED: Final = RECORDS | {"enum", "fixed"}

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record; `default` is JSON, and may be None where `has_default` is set."""

    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None
    doc: str | None = None
    order: str = "ascending"
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class AvroType:
    """A type; which of the attributes mean something depends on its kind.

    Attributes:
        kind: a primitive's name, `record`, `error`, `enum`, `fixed`, `array`, `map` or `union`.
        name: the full name, with its namespace; of named kinds. Aliases are full names, too.
        symbols: an enum's, in order.
        default: an enum's default symbol; None for none.
        size: of a fixed, bytes.
        items: the type of an array's items or a map's values.
        properties: what else was said about it, logical types included; all that was said, where
            fastavro has parsed it.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: tuple[AvroField, ...] = ()
    symbols: Mapping[str, None] = field(default_factory=dict)
    default: str | None = None
    size: int = 0
    items: "AvroType | None" = None
    branches: "tuple[AvroType, ...]" = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def label(self) -> str:
        return self.name or self.kind

    def parts(self) -> "Iterator[AvroType]":
        yield from (each.type for each in self.fields)
        yield from self.branches
        if self.items is not None:
            yield self.items

    def reachable(self) -> "Iterator[AvroType]":
        """It and all types that it is made of, each once, from the outside in."""
        to_do, seen = [self], set[int]()
        while to_do:
            kind = to_do.pop()
            if id(kind) not in seen:
                seen.add(id(kind))
                yield kind
                to_do += reversed(list(kind.parts()))


def decimal_of(kind: AvroType) -> tuple[int, int] | None:
    if kind.kind not in ("bytes", "fixed") or kind.properties.get("logicalType") != "decimal":
        return None
    return precision_and_scale(kind.properties)


def precision_and_scale(properties: Mapping[str, Any]) -> tuple[int, int] | None:
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    for number in (precision, scale):
        if isinstance(number, bool) or not isinstance(number, int):
            return None  # invalid: by the specification, the logical type is ignored
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    return (precision, scale) if 0 <= scale <= precision > 0 else None
