"""Whether a field's default is a value of its type; source: the Avro specification, "Records"."""

from typing import Any

from hermes.avro.graph import RECORDS, AvroField, AvroType
from hermes.avro.normal_form import json_text
from hermes.avro.primitives import primitive_value
from hermes.quoting import printable


class Defaults:
    """The defaults of a schema's fields, checked when all its types are known."""

    def __init__(self) -> None:
        self._noted: list[tuple[AvroField, str]] = []
        # What has been found out, so that nested unions don't multiply the work.
        self._known: dict[tuple[int, int], bool] = {}

    def note(self, field: AvroField, where: str) -> None:
        """Check this field's default later; `where` is its path, for the error."""
        self._noted.append((field, where))

    def check(self) -> None:
        """Check all. Raises ValueError: a default isn't a value of its field's type."""
        for field, where in self._noted:
            if not self._fits(field.default, field.type):
                shown = printable(json_text(field.default), 60)
                raise ValueError(
                    f"at {where}: the default {shown} is not a value of the type {field.type.label}"
                )

    def _fits(self, value: Any, kind: AvroType) -> bool:
        key = id(value), id(kind)
        if key not in self._known:
            self._known[key] = self._compare(value, kind)
        return self._known[key]

    def _compare(self, value: Any, kind: AvroType) -> bool:
        if kind.kind == "union":  # any branch: since 1.12, and others' libraries did before
            return any(self._fits(value, each) for each in kind.branches)
        if kind.kind in RECORDS:
            return isinstance(value, dict) and all(
                self._fits(value[each.name], each.type) if each.name in value else each.has_default
                for each in kind.fields
            )
        if kind.items is not None:
            if kind.kind == "map":
                value = list(value.values()) if isinstance(value, dict) else None
            return isinstance(value, list) and all(self._fits(each, kind.items) for each in value)
        try:
            primitive_value(value, kind)
        except OverflowError:  # a double may be given any whole number here
            return True
        except ValueError:
            return False
        return True
