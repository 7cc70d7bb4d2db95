"""What an Avro schema says, as values; how it is told.

Source: the Avro specification 1.12, "Schema Declaration". Nodes refer to each other, in cycles
where a record contains itself.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
NAMED: Final = frozenset(("record", "error", "enum", "fixed"))

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record.

    Attributes:
        name: of the field.
        type: of its values.
        aliases: names that a writer may have for it.
        has_default: whether a reader can do without it.
        default: JSON; None may be one, see `has_default`.
        doc: for people; None for none.
        order: `ascending`, `descending` or `ignore`.
        properties: what else was said about it.
    """

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
        name: the full name, with its namespace; of named kinds.
        aliases: full names that a writer may have for it.
        doc: for people; None for none.
        fields: a record's.
        symbols: an enum's.
        default: an enum's default symbol; None for none.
        size: of a fixed, bytes.
        items: the type of an array's items or a map's values.
        branches: a union's.
        properties: what else was said about it, logical types included.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: "AvroType | None" = None
    branches: "tuple[AvroType, ...]" = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def label(self) -> str:
        """How people call it: its name, or its kind."""
        return self.name or self.kind

    def parts(self) -> "Iterator[AvroType]":
        """The types that it is directly made of."""
        yield from (each.type for each in self.fields)
        yield from self.branches
        if self.items is not None:
            yield self.items


@dataclass(frozen=True, slots=True)
class ParsedAvroSchema:
    """A schema, read.

    Attributes:
        root: its type.
        names: the named types that it defines, or knows from its references, by full name.
        text: its normal form: JSON without spaces, keys in one order, names as short as they can
            be; what has the same normal form is the same schema.
    """

    root: AvroType
    names: Mapping[str, AvroType]
    text: str


def decimal_of(kind: AvroType) -> tuple[int, int] | None:
    """Precision and scale, where a type has the logical type `decimal`; None where not."""
    if kind.kind not in ("bytes", "fixed") or kind.properties.get("logicalType") != "decimal":
        return None
    precision, scale = kind.properties.get("precision"), kind.properties.get("scale", 0)
    for number in (precision, scale):
        if isinstance(number, bool) or not isinstance(number, int):
            return None  # invalid: by the specification, the logical type is ignored
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    return (precision, scale) if 0 <= scale <= precision > 0 else None
