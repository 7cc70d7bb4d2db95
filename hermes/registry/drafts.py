"""Schemas of either type: read with what they refer to, and compared."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hermes.avro.compatibility import reasons_not_to_read
from hermes.avro.graph import AvroType
from hermes.avro.parsing import ParsedAvroSchema, parse_schema
from hermes.quoting import quoted
from hermes.registry.documents import read_document, write_document
from hermes.registry.entities import AVRO, JSON, SCHEMA_TYPES, Reference, StoredSchema
from hermes.registry.errors import invalid_schema
from hermes.registry.limits import MAX_REFERENCES
from hermes.registry.state import RegistryState

_T = TypeVar("_T")

# What is read takes some twenty bytes of memory a character, and something for each text.
_MOST_KEPT_CHARACTERS: Final = 4_000_000
_CHARACTERS_OF_EACH: Final = 500


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema as a call brings it; a reference's version of -1 means the latest."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    rule_set: str = ""


def read_draft(draft: Draft, state: RegistryState, *, normalize: bool = False) -> StoredSchema:
    """Read a schema with the schemas that it refers to, which `state` has.

    `normalize`: whether a JSON Schema's keys are sorted; Avro's normal form is always made. Raises
    RegistryError 42201: it isn't a schema, or a reference leads nowhere.
    """
    references = tuple(_found(each, state) for each in draft.references)
    if draft.type not in SCHEMA_TYPES:
        known = " and ".join(SCHEMA_TYPES)
        raise invalid_schema(f"the type {quoted(draft.type, 40)} is not served here, but {known}")
    referred = _referred(references, state)

    def read() -> StoredSchema:
        if draft.type == JSON:
            return _read_json(draft, references, normalize)
        text = _read_avro_text(draft.text, referred).text
        return StoredSchema(AVRO, text, references, draft.metadata, draft.rule_set)

    # Each is read twice: ahead of the writer, and by it.
    key = draft, references, normalize, _key("", referred)
    return _DRAFTS.get(key, len(draft.text), read)


def reasons_against(
    new: StoredSchema,
    old: StoredSchema,
    state: RegistryState,
    *,
    new_reads: bool,
    old_reads: bool,
) -> list[str]:
    """Why a new schema isn't compatible with an older one; empty if it is.

    Args:
        new_reads: whether the new one must read what was written with the older one.
        old_reads: whether the older one must read what will be written with the new one.
    """
    if new.identity == old.identity or not (new_reads or old_reads):
        return []
    if new.type != old.type:
        return [f"the type {new.type} differs from {old.type}"]
    if new.type == JSON:
        return [
            "it is a JSON Schema and differs from what is registered; JSON Schemas are not "
            "compared here: set the compatibility to NONE to allow every change"
        ]
    found = []
    if new_reads:
        reasons = _compared(new, old, state)
        found += [f"the new schema can't read older data: {each}" for each in reasons]
    if old_reads:
        reasons = _compared(old, new, state)
        found += [f"older readers can't read new data: {each}" for each in reasons]
    return found


def _found(reference: Reference, state: RegistryState) -> Reference:
    number = reference.version
    if number == -1:
        live = state.live_versions(reference.subject)
        number = live[-1].number if live else 0
    version = state.version(reference.subject, number)
    if version is None or version.is_deleted:
        where = "no version" if reference.version == -1 else f"no version {reference.version}"
        raise invalid_schema(
            f"the reference {quoted(reference.name)} leads nowhere: {quoted(reference.subject)} "
            f"has {where}"
        )
    return Reference(reference.name, reference.subject, number)


def _read_json(draft: Draft, references: tuple[Reference, ...], normalize: bool) -> StoredSchema:
    try:
        document = read_document(draft.text)
    except ValueError as error:
        raise invalid_schema(str(error)) from None
    if not isinstance(document, dict | bool):
        raise invalid_schema("a JSON Schema is an object, or true or false")
    text = write_document(document, sort_keys=True) if normalize else draft.text
    return StoredSchema(JSON, text, references, draft.metadata, draft.rule_set)


def _compared(reader: StoredSchema, writer: StoredSchema, state: RegistryState) -> list[str]:
    referred = [_referred(each.references, state) for each in (reader, writer)]

    def compare() -> list[str]:
        schemas = (
            _read_avro_text(each.text, found)
            for each, found in zip((reader, writer), referred, strict=True)
        )
        return reasons_not_to_read(*schemas)

    key = _key(reader.text, referred[0]), _key(writer.text, referred[1])
    return _COMPARED.get(key, len(reader.text) + len(writer.text), compare)


def read_avro(text: str, known: Mapping[str, AvroType] | None = None) -> ParsedAvroSchema:
    """Read an Avro schema; `known` has the named types that its references define.

    Raises RegistryError 42201 if it isn't a schema; the message says where and why.
    """
    try:
        return parse_schema(read_document(text), known)
    except ValueError as error:
        raise invalid_schema(str(error)) from None


def _read_avro_text(text: str, referred: list[tuple[str, StoredSchema]]) -> ParsedAvroSchema:
    def read() -> ParsedAvroSchema:
        found = read_avro(text, _known_names(referred))
        # It is registered, and compared later, by its normal form.
        return _READ.get(_key(found.text, referred), len(found.text), lambda: found)

    return _READ.get(_key(text, referred), len(text), read)


def _key(text: str, referred: list[tuple[str, StoredSchema]]) -> Any:
    """What a text means depends on what it refers to.

    Not by their ids: one that was never made durable is given out again.
    """
    return text, tuple(schema.identity for _, schema in referred)


def _known_names(referred: list[tuple[str, StoredSchema]]) -> Mapping[str, AvroType]:
    known: dict[str, AvroType] = {}
    for place, schema in referred:
        if schema.type != AVRO:
            raise invalid_schema(f"{place} is referred to, and is not an Avro schema")
        # In order: what a schema refers to is known by then.
        known.update(read_avro(schema.text, known).names)
    return known


def _referred(
    references: Iterable[Reference], state: RegistryState
) -> list[tuple[str, StoredSchema]]:
    """All schemas that references lead to, in dependency order."""
    found: dict[tuple[str, int], StoredSchema] = {}
    to_do = [(each.subject, each.version) for each in reversed(list(references))]
    while to_do:
        place = to_do.pop()
        if place in found:
            continue
        version = state.version(*place)
        if version is None:
            raise invalid_schema(f"version {place[1]} of {quoted(place[0])} is not there")
        schema = state.schemas[version.id]
        missing = [
            (each.subject, each.version)
            for each in schema.references
            if (each.subject, each.version) not in found
        ]
        if missing:
            to_do += [place, *missing]
        else:
            found[place] = schema
        if len(found) + len(to_do) > MAX_REFERENCES:
            raise invalid_schema(f"it refers to more than {MAX_REFERENCES} schemas")
    return [
        (f"version {number} of {quoted(name)}", schema) for (name, number), schema in found.items()
    ]


class _ParsedSchemas:
    """A cache of what was read lately. Thread-safe."""

    def __init__(self, most_characters: int) -> None:
        self._most = most_characters
        self._kept: OrderedDict[Any, tuple[int, Any]] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def get(self, key: Any, length: int, make: Callable[[], _T]) -> _T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: _T = self._kept[key][1]
                return found
        made, length = make(), length + _CHARACTERS_OF_EACH
        with self._lock:
            if key not in self._kept:
                self._kept[key] = length, made
                self._characters += length
            while self._characters > self._most:
                _, (cut, _) = self._kept.popitem(last=False)
                self._characters -= cut
        return made


_DRAFTS: Final = _ParsedSchemas(_MOST_KEPT_CHARACTERS)
_READ: Final = _ParsedSchemas(_MOST_KEPT_CHARACTERS)
_COMPARED: Final = _ParsedSchemas(_MOST_KEPT_CHARACTERS)
