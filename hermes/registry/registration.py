"""Registering a schema: its id, its version, and whether it is compatible."""

from dataclasses import dataclass
from typing import Any, Final

from hermes.avro.compatibility import MAX_REASONS
from hermes.quoting import quoted
from hermes.registry.drafts import Draft, read_draft, reasons_against
from hermes.registry.entities import StoredSchema, Version
from hermes.registry.errors import (
    INCOMPATIBLE,
    INVALID_SCHEMA,
    NOT_PERMITTED,
    RegistryError,
    invalid_schema,
)
from hermes.registry.events import SchemaRegistered, encode_event
from hermes.registry.limits import MAX_COMPARED_CHARACTERS, MAX_EVENT_BYTES
from hermes.registry.lookups import check_subject, mode, properties_of, settings_of
from hermes.registry.state import RegistryState
from hermes.registry.writer import MutationResult

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)

#: Which older versions count, and who must read what: (all versions, new reads, old reads).
LEVELS: Final = {
    "NONE": (False, False, False),
    "BACKWARD": (False, True, False),
    "BACKWARD_TRANSITIVE": (True, True, False),
    "FORWARD": (False, False, True),
    "FORWARD_TRANSITIVE": (True, False, True),
    "FULL": (False, True, True),
    "FULL_TRANSITIVE": (True, True, True),
}

_LAST_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """Register a schema under a subject.

    Attributes:
        normalize: whether to normalise it; the subject's settings may want it too.
        id: the id that it has elsewhere, for the mode IMPORT; None for the registry's choice. So
            `version`, which without an id can only be the next one.
    """

    subject: str
    draft: Draft
    normalize: bool = False
    id: int | None = None
    version: int | None = None

    def decide(self, state: RegistryState) -> MutationResult:
        check_subject(self.subject)
        schema = read_draft(self.draft, state, normalize=normalizes(state, self))
        known = state.id_of(schema.identity)
        if known is not None and self.id in (None, known):
            for each in reversed(state.live_versions(self.subject)):
                if each.id == known and self.version in (None, each.number):
                    return MutationResult(None, _answer(schema, each))
        self._check_mode(state)
        if self.id is None:
            reasons = incompatibilities(state, self.subject, schema)
            if reasons:
                raise incompatible(self.subject, reasons)
        version = self._version(state, schema, known)
        event = SchemaRegistered(self.subject, version.number, version.id, schema)
        _check_size(event)
        return MutationResult(event, _answer(schema, version))

    def _check_mode(self, state: RegistryState) -> None:
        check_writable(state, self.subject)
        present = mode(state, self.subject, or_global=True)
        if self.id is not None and present != IMPORT:
            raise not_permitted(f"Subject {quoted(self.subject)} is not in import mode")
        if self.id is None and present == IMPORT:
            raise not_permitted(
                f"Subject {quoted(self.subject)} is not in read-write mode: in import mode, a "
                "schema comes with its id"
            )

    def _version(self, state: RegistryState, schema: StoredSchema, known: int | None) -> Version:
        versions = state.versions(self.subject)
        following = versions[-1].number + 1 if versions else 1
        number = self.version or following
        if self.id is None:
            if number != following:
                raise invalid_schema(
                    f"version {number} is not one more than the previous version: {following} is"
                )
            if known is None and state.last_id >= _LAST_ID:
                raise not_permitted("no id is left")
            return Version(number, known or state.last_id + 1)
        if self.id in state.schemas and self.id != known:
            raise not_permitted(f"Overwrite new schema with id {self.id} is not permitted.")
        if known not in (None, self.id):
            raise not_permitted(f"the schema has the id {known}, and can't have {self.id} too")
        taken = state.version(self.subject, number)
        if taken is not None:
            raise not_permitted(
                f"version {number} of {quoted(self.subject)} is there already, with id {taken.id}"
            )
        return Version(number, self.id)


def normalizes(state: RegistryState, call: Any) -> bool:
    """Whether to normalise a call's schema: it says so, or its subject's settings do."""
    return bool(call.normalize or settings_of(state, call.subject).get("normalize"))


def check_writable(state: RegistryState, subject: str) -> None:
    """Refuse changes, with the code 42205, in a mode that forbids them."""
    present = mode(state, subject, or_global=True)
    if READONLY_OVERRIDE in (present, mode(state, None, or_global=True)) or present == READONLY:
        raise not_permitted(f"Subject {quoted(subject)} is in read-only mode")


def incompatibilities(
    state: RegistryState,
    subject: str,
    schema: StoredSchema,
    versions: list[Version] | None = None,
) -> list[str]:
    """Why a schema isn't compatible with those of a subject, which need not exist; empty if it is.

    `versions`: the versions to compare with; None for those that the subject's settings say.
    """
    settings = settings_of(state, subject)
    is_transitive, new_reads, old_reads = LEVELS[settings["compatibilityLevel"]]
    if versions is None:
        versions = _same_group(state, state.live_versions(subject), schema, settings)
        versions = versions if is_transitive else versions[-1:]
    if not (new_reads or old_reads):
        return []
    numbers = {each.id: each.number for each in versions}
    if sum(len(state.schemas[each].text) for each in numbers) > MAX_COMPARED_CHARACTERS:
        return [
            f"the older versions have more than {MAX_COMPARED_CHARACTERS} characters altogether, "
            "too many to compare with: delete some, or choose a level that isn't transitive"
        ]
    found: list[str] = []
    for schema_id in reversed(numbers):
        old = state.schemas[schema_id]
        reasons = reasons_against(schema, old, state, new_reads=new_reads, old_reads=old_reads)
        found += [f"version {numbers[schema_id]}: {reason}" for reason in reasons]
        if len(found) >= MAX_REASONS:
            break
    if found:
        found.append(f"compatibility: {settings['compatibilityLevel']}")
    return found


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    return RegistryError(
        INCOMPATIBLE,
        "Schema being registered is incompatible with an earlier schema for subject "
        f"{quoted(subject)}, details: [{'; '.join(reasons)}]",
    )


def not_permitted(reason: str) -> RegistryError:
    return RegistryError(NOT_PERMITTED, reason)


def _same_group(
    state: RegistryState,
    versions: list[Version],
    schema: StoredSchema,
    settings: dict[str, Any],
) -> list[Version]:
    group = settings.get("compatibilityGroup")
    if not group:
        return versions
    ours = properties_of(schema).get(group)
    return [each for each in versions if properties_of(state.schemas[each.id]).get(group) == ours]


def _answer(schema: StoredSchema, version: Version) -> dict[str, Any]:
    return {"id": version.id, "version": version.number, "guid": schema.guid}


def _check_size(event: SchemaRegistered) -> None:
    schema = event.schema
    parts = [schema.text, schema.metadata, schema.rule_set]
    parts += [text for each in schema.references for text in (each.name, each.subject)]
    if sum(map(len, parts)) + 100 * len(parts) < MAX_EVENT_BYTES // 8:
        return  # no character takes more than six bytes
    size = len(encode_event(event))
    if size > MAX_EVENT_BYTES:
        raise RegistryError(
            INVALID_SCHEMA,
            f"Invalid schema: it takes {size} bytes in the registry's log, and {MAX_EVENT_BYTES} "
            "are allowed: move types to subjects of their own, and refer to them",
        )
