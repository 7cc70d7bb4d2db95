"""The normal form of an Avro schema: JSON in which one schema is written in one way.

It is not the specification's Parsing Canonical Form, which drops documentation, defaults and
aliases: those belong to what is registered. Names are as short as their namespaces let them be,
attributes that say what goes without saying are left out, other people's attributes are sorted.
"""

import json
from collections.abc import Mapping
from typing import Any

from hermes.avro.graph import PRIMITIVES, AvroField, AvroType


def normal_text(root: AvroType, known: Mapping[str, AvroType]) -> str:
    """Write a schema; the types in `known` are defined elsewhere, and only named here."""
    return json_text(_written(root, "", set(known)))


def json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _written(kind: AvroType, space: str, defined: set[str]) -> Any:
    """One type as JSON; a named type is defined where it comes first, and named later."""
    if kind.kind == "union":
        return [_written(each, space, defined) for each in kind.branches]
    if kind.kind in PRIMITIVES:
        return {"type": kind.kind, **_sorted(kind.properties)} if kind.properties else kind.kind
    if kind.items is not None:
        key = "items" if kind.kind == "array" else "values"
        items = _written(kind.items, space, defined)
        return {"type": kind.kind, key: items, **_sorted(kind.properties)}
    own_space = kind.name.rpartition(".")[0]
    if kind.name in defined:
        return kind.simple_name if own_space in (space, "") else kind.name
    defined.add(kind.name)
    return _defined(kind, space, own_space, defined)


def _defined(kind: AvroType, space: str, own_space: str, defined: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind.kind, "name": kind.simple_name}
    if own_space != space:
        found["namespace"] = own_space
    if kind.doc is not None:
        found["doc"] = kind.doc
    if kind.kind == "enum":
        found["symbols"] = list(kind.symbols)
        if kind.default is not None:
            found["default"] = kind.default
    elif kind.kind == "fixed":
        found["size"] = kind.size
    else:
        found["fields"] = [_field(each, own_space, defined) for each in kind.fields]
    if kind.aliases:
        found["aliases"] = [
            each.rpartition(".")[2] if each.rpartition(".")[0] == own_space else each
            for each in kind.aliases
        ]
    return {**found, **_sorted(kind.properties)}


def _field(field: AvroField, space: str, defined: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": field.name, "type": _written(field.type, space, defined)}
    if field.doc is not None:
        found["doc"] = field.doc
    if field.has_default:
        found["default"] = field.default
    if field.order != "ascending":
        found["order"] = field.order
    if field.aliases:
        found["aliases"] = list(field.aliases)
    return {**found, **_sorted(field.properties)}


def _sorted(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: properties[key] for key in sorted(properties)}
