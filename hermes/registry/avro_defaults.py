"""Whether a field's default is a value of its type; source: the Avro specification, "Records"."""

import re
from typing import Any, Final

from hermes.quoting import printable
from hermes.registry.avro_types import AvroField, AvroType
from hermes.registry.documents import write_document

_INTS: Final = {"int": 31, "long": 63}
_BYTES: Final = re.compile("[\0-\xff]*")  # each character is a byte
_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")  # how JSON's readers of Avro write these


class Defaults:
    """The defaults of a schema's fields, checked when all its types are known."""

    def __init__(self) -> None:
        self._noted: list[tuple[AvroField, str]] = []
        # What has been found out, so that nested unions don't multiply the work.
        self._known: dict[tuple[int, int], bool] = {}
        self._symbols: dict[int, frozenset[str]] = {}

    def note(self, field: AvroField, where: str) -> None:
        """Check this field's default, later.

        Args:
            field: has a default.
            where: its path, for the error.
        """
        self._noted.append((field, where))

    def check(self) -> None:
        """Check all.

        Raises:
            ValueError: a default isn't a value of its field's type.
        """
        for field, where in self._noted:
            if not self._fits(field.default, field.type):
                shown = printable(write_document(field.default), 60)
                raise ValueError(
                    f"at {where}: the default {shown} is not a value of the type {field.type.label}"
                )

    def _fits(self, value: Any, kind: AvroType) -> bool:
        key = id(value), id(kind)
        if key not in self._known:
            self._known[key] = self._look(value, kind)
        return self._known[key]

    def _look(self, value: Any, kind: AvroType) -> bool:
        match kind.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long" as name:
                return (
                    isinstance(value, int)
                    and not isinstance(value, bool)
                    and -(1 << _INTS[name]) <= value < 1 << _INTS[name]
                )
            case "float" | "double":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return is_number or value in _NUMBERS
            case "string":
                return isinstance(value, str)
            case "bytes":
                return isinstance(value, str) and _BYTES.fullmatch(value) is not None
            case "fixed":
                return (
                    isinstance(value, str)
                    and len(value) == kind.size
                    and _BYTES.fullmatch(value) is not None
                )
            case "enum":
                if id(kind) not in self._symbols:
                    self._symbols[id(kind)] = frozenset(kind.symbols)
                return isinstance(value, str) and value in self._symbols[id(kind)]
            case "union":  # any branch: since 1.12, and other languages' libraries did before
                return any(self._fits(value, each) for each in kind.branches)
            case "array":
                return isinstance(value, list) and all(
                    self._fits(each, _items(kind)) for each in value
                )
            case "map":
                return isinstance(value, dict) and all(
                    self._fits(each, _items(kind)) for each in value.values()
                )
        return isinstance(value, dict) and all(
            self._fits(value[each.name], each.type) if each.name in value else each.has_default
            for each in kind.fields
        )


def _items(kind: AvroType) -> AvroType:
    assert kind.items is not None
    return kind.items
