"""Reads Avro schemas: JSON in, types and the normal form out, or one sentence that says where.

Of the packages: `avro` and `fastavro` read schemas too, but accept some that the specification
forbids (see tests/unit/registry/test_drafts.py), don't tell where a fault is, and follow a hostile
document as deep as it goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes.avro.defaults import Defaults
from hermes.avro.graph import FULL_NAME, NAME, NAMED, PRIMITIVES, AvroField, AvroType
from hermes.avro.normal_form import normal_text
from hermes.quoting import quoted

_ORDERS: Final = ("ascending", "descending", "ignore")
_OF_ALL: Final = frozenset(("type",))
_OF_NAMED: Final = _OF_ALL | {"name", "namespace", "doc", "aliases"}
_KEYS: Final[dict[str, frozenset[str]]] = {
    "record": _OF_NAMED | {"fields"},
    "error": _OF_NAMED | {"fields"},
    "enum": _OF_NAMED | {"symbols", "default"},
    "fixed": _OF_NAMED | {"size"},
    "array": _OF_ALL | {"items"},
    "map": _OF_ALL | {"values"},
}
_PRIMITIVE_TYPES: Final = {name: AvroType(name) for name in PRIMITIVES}
_OF_FIELD: Final = frozenset(("name", "type", "doc", "default", "order", "aliases"))


@dataclass(frozen=True, slots=True)
class ParsedAvroSchema:
    """A schema that keeps the specification's rules.

    Attributes:
        names: the named types that it defines, or knows from its references, by full name.
        text: its normal form; what has the same is the same schema.
    """

    root: AvroType
    names: Mapping[str, AvroType]
    text: str


def parse_schema(document: Any, known: Mapping[str, AvroType] | None = None) -> ParsedAvroSchema:
    """Read an Avro schema.

    Args:
        document: JSON, whose depth and size are bounded.
        known: named types that it may use without defining them: those of its references.

    Raises:
        ValueError: it isn't a schema; the text says where and why.
    """
    known = known or {}
    parser = _SchemaParser(known)
    root = parser.type(document, "", "")
    parser.defaults.check()
    return ParsedAvroSchema(root, parser.names, normal_text(root, known))


def _fault(where: str, what: str) -> ValueError:
    return ValueError(f"at {where}: {what}" if where else what)


class _SchemaParser:
    """Reads one document; `where` is the path of what is read, for people."""

    def __init__(self, known: Mapping[str, AvroType]) -> None:
        self.names = dict(known)
        self.defaults = Defaults()
        # By their branches, so that what occurs in every other field is compared once.
        self._unions: dict[tuple[int, ...], AvroType] = {}

    def type(self, found: Any, space: str, where: str) -> AvroType:
        match found:
            case str():
                return self._named(found, space, where)
            case list():
                return self._union(found, space, where)
            case dict():
                return self._object(found, space, where)
        raise _fault(where, f"a type must be a name, a list or an object, not {quoted(found, 40)}")

    def _named(self, name: str, space: str, where: str) -> AvroType:
        if name in PRIMITIVES:
            return _PRIMITIVE_TYPES[name]
        if not FULL_NAME.fullmatch(name):
            raise _fault(where, f"{quoted(name)} is not a name of a type")
        candidates = [name] if "." in name or not space else [f"{space}.{name}", name]
        for each in candidates:
            if each in self.names:
                return self.names[each]
        raise _fault(
            where,
            f"the type {quoted(candidates[0])} is not known: define it before it is used, or give "
            "a reference to the subject that has it",
        )

    def _union(self, found: list[Any], space: str, where: str) -> AvroType:
        branches = tuple(self.type(each, space, where) for each in found)
        seen = set()
        for each in branches:
            if each.kind == "union":
                raise _fault(where, "a union can't contain a union")
            if each.label in seen:
                raise _fault(where, f"the union has {quoted(each.label)} twice")
            seen.add(each.label)
        key = tuple(map(id, branches))
        if key not in self._unions:
            self._unions[key] = AvroType("union", branches=branches)
        return self._unions[key]

    def _object(self, found: dict[str, Any], space: str, where: str) -> AvroType:
        if "type" not in found:
            raise _fault(where, f'an object needs a "type": {quoted(", ".join(found) or "{}", 60)}')
        kind = found["type"]
        if not isinstance(kind, str):
            return self.type(kind, space, where)
        if kind in NAMED:
            return self._definition(kind, found, space, where)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in found:
                raise _fault(where, f'{kind} needs "{key}"')
            end = "[]" if kind == "array" else "{}"
            items = self.type(found[key], space, where + end)
            return AvroType(kind, items=items, properties=_properties(found, _KEYS[kind]))
        if kind in PRIMITIVES:
            properties = _properties(found, _OF_ALL)
            return (
                AvroType(kind, properties=properties) if properties else self._named(kind, "", "")
            )
        return self._named(kind, space, where)

    def _definition(self, kind: str, found: dict[str, Any], space: str, where: str) -> AvroType:
        name, space = _full_name(found, space, where)
        if name in PRIMITIVES:
            raise _fault(where, f"{quoted(name)} is a primitive type's name")
        if name in self.names:
            raise _fault(where, f"{quoted(name)} is defined twice")
        where = where or name.rpartition(".")[2]
        made = AvroType(kind, name, properties=_properties(found, _KEYS[kind]))
        made.aliases = tuple(
            each if "." in each or not space else f"{space}.{each}"
            for each in _names(found.get("aliases", []), FULL_NAME, "aliases", where)
        )
        made.doc = _text(found, "doc", where)
        self.names[name] = made
        if kind == "enum":
            self._enum(made, found, where)
        elif kind == "fixed":
            size = found.get("size")
            if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**31:
                raise _fault(where, 'fixed needs a "size": a number of bytes')
            made.size = size
        else:
            self._fields(made, found, space, where)
        return made

    def _enum(self, made: AvroType, found: dict[str, Any], where: str) -> None:
        if "symbols" not in found:
            raise _fault(where, 'enum needs "symbols"')
        symbols = _names(found["symbols"], NAME, "symbols", where)
        made.symbols = dict.fromkeys(symbols)
        if len(made.symbols) < len(symbols):
            raise _fault(where, "a symbol is given twice")
        if found.get("default") is not None:
            made.default = found["default"]
            if made.default not in made.symbols:
                raise _fault(where, f"the default {quoted(made.default)} is none of the symbols")

    def _fields(self, made: AvroType, found: dict[str, Any], space: str, where: str) -> None:
        fields = found.get("fields")
        if not isinstance(fields, list):
            raise _fault(where, f'{made.kind} needs "fields": a list')
        read = []
        names: set[str] = set()
        for each in fields:
            field = self._field(each, space, where)
            if field.name in names:
                raise _fault(where, f"the field {quoted(field.name)} is given twice")
            names.add(field.name)
            read.append(field)
        made.fields = tuple(read)

    def _field(self, found: Any, space: str, where: str) -> AvroField:
        if not isinstance(found, dict):
            raise _fault(where, f"a field must be an object, not {quoted(found, 40)}")
        name = found.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise _fault(where, f"a field needs a name by Avro's rules, not {quoted(name, 40)}")
        where = f"{where}.{name}"
        if "type" not in found:
            raise _fault(where, 'a field needs a "type"')
        order = found.get("order", "ascending")
        if order not in _ORDERS:
            raise _fault(where, f"the order must be one of {', '.join(_ORDERS)}")
        field = AvroField(
            name,
            self.type(found["type"], space, where),
            tuple(_names(found.get("aliases", []), NAME, "aliases", where)),
            "default" in found,
            found.get("default"),
            _text(found, "doc", where),
            order,
            _properties(found, _OF_FIELD),
        )
        if field.has_default:
            self.defaults.note(field, where)
        return field


def _full_name(found: dict[str, Any], space: str, where: str) -> tuple[str, str]:
    name = found.get("name")
    if not isinstance(name, str) or not FULL_NAME.fullmatch(name):
        raise _fault(where, f"{found['type']} needs a name by Avro's rules, not {quoted(name, 40)}")
    if "." in name:
        return name, name.rpartition(".")[0]
    given = found.get("namespace")
    if given is None:
        given = space
    elif not isinstance(given, str) or (given and not FULL_NAME.fullmatch(given)):
        raise _fault(where, f"{quoted(given, 40)} is not a namespace by Avro's rules")
    return (f"{given}.{name}" if given else name), given


def _names(found: Any, pattern: Any, what: str, where: str) -> list[str]:
    if not isinstance(found, list):
        raise _fault(where, f'"{what}" must be a list of names')
    for each in found:
        if not isinstance(each, str) or not pattern.fullmatch(each):
            raise _fault(where, f'"{what}" has {quoted(each, 40)}: not a name by Avro\'s rules')
    return found


def _text(found: dict[str, Any], key: str, where: str) -> str | None:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        raise _fault(where, f'"{key}" must be text')
    return value


def _properties(found: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: found[key] for key in found if key not in known}
