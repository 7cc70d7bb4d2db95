"""What a registry's state says: subjects, versions, schemas, settings."""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from hermes.quoting import quoted
from hermes.registry.documents import read_document
from hermes.registry.entities import StoredSchema, Version
from hermes.registry.errors import (
    INVALID_SUBJECT,
    INVALID_VERSION,
    NO_CONFIG_OF_SUBJECT,
    NO_MODE_OF_SUBJECT,
    SCHEMA_NOT_FOUND,
    RegistryError,
    subject_not_found,
    version_not_found,
)
from hermes.registry.limits import MAX_SUBJECT_LENGTH
from hermes.registry.state import DEFAULT_LEVEL, DEFAULT_MODE, RegistryState

#: In place of a version's number: the latest.
LATEST_VERSION: Final = -1

_LAST_VERSION: Final = 2**31 - 1


def check_subject(subject: str) -> None:
    """Refuse a name that no subject can have, with the code 42208."""
    if subject.startswith((":.", ":*:")):
        reason = "contexts are not served here, but the default one, whose subjects need no prefix"
    elif not subject or len(subject) > MAX_SUBJECT_LENGTH:
        reason = f"a subject's name has 1 to {MAX_SUBJECT_LENGTH} characters"
    elif not subject.isprintable() or subject in ("__GLOBAL", "__EMPTY"):
        reason = "it has characters that can't be printed, or is a reserved name"
    else:
        return
    raise RegistryError(
        INVALID_SUBJECT, f"The specified subject {quoted(subject)} is not a valid subject: {reason}"
    )


def version_number(text: str) -> int:
    """A version as a path has it: a number, `latest` or -1; RegistryError 42202 otherwise."""
    if text in ("latest", "-1"):
        return LATEST_VERSION
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= _LAST_VERSION:
        return int(text)
    raise RegistryError(
        INVALID_VERSION,
        f"The specified version {quoted(text, 40)} is not a valid version id. Allowed values are "
        f'between [1, 2^31-1] and the string "latest"',
    )


def listed(
    state: RegistryState, subject: str, *, deleted: bool = False, deleted_only: bool = False
) -> list[Version]:
    return [each for each in state.versions(subject) if _shown(each, deleted, deleted_only)]


def subjects(
    state: RegistryState, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False
) -> list[str]:
    """The subjects that have a version, sorted.

    `deleted`: also those of which all versions are deleted softly; `deleted_only`: only those.
    """
    prefix = prefix.removeprefix(":*:")  # Confluent's clients: of all contexts

    def is_listed(subject: str) -> bool:
        return not state.is_live(subject) if deleted_only else deleted or state.is_live(subject)

    return sorted(each for each in state.subjects() if each.startswith(prefix) and is_listed(each))


def versions(
    state: RegistryState, subject: str, *, deleted: bool = False, deleted_only: bool = False
) -> list[int]:
    """The numbers of a subject's versions, as `subjects`; RegistryError 40401 if there are none."""
    found = listed(state, subject, deleted=deleted, deleted_only=deleted_only)
    if not found:
        raise subject_not_found(subject)
    return [each.number for each in found]


def version(state: RegistryState, subject: str, number: int, *, deleted: bool = False) -> Version:
    """One version, -1 being the latest; RegistryError 40401 or 40402 if it isn't there.

    `deleted`: whether it may be deleted softly.
    """
    found = listed(state, subject, deleted=deleted)
    if not found:
        raise subject_not_found(subject)
    for each in reversed(found):
        if number in (-1, each.number):
            return each
    raise version_not_found(number)


def version_to_json(state: RegistryState, subject: str, found: Version) -> dict[str, Any]:
    schema = state.schemas[found.id]
    return {
        "subject": subject,
        "version": found.number,
        "id": found.id,
        "guid": schema.guid,
        **schema.to_json(),
    }


def schema_of_id(state: RegistryState, schema_id: int) -> StoredSchema:
    """The schema that has an id, of deleted versions too; RegistryError 40403 if none has it."""
    schema = state.schemas.get(schema_id)
    if schema is None:
        raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
    return schema


def id_of_guid(state: RegistryState, guid: str) -> int:
    """The id of the schema that has a guid; RegistryError 40403 if none has it."""
    try:
        found = state.id_of(UUID(guid).bytes)
    except ValueError:
        found = None
    if found is None:
        raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {quoted(guid, 40)} not found")
    return found


def uses(
    state: RegistryState, schema_id: int, subject: str | None, *, deleted: bool
) -> list[tuple[str, int]]:
    """The subjects and versions that have an id; RegistryError 40403 if there is no such id.

    Those of one `subject` only, if it is given; `deleted` includes those deleted softly.
    """
    schema_of_id(state, schema_id)
    return [
        (name, number)
        for name, number in state.uses(schema_id)
        if subject in (None, name) and _is_there(state, name, number, deleted)
    ]


def referrer_ids(state: RegistryState, subject: str, number: int) -> list[int]:
    """The ids of the schemas that refer to a version, sorted; see `version`."""
    found = version(state, subject, number)
    places = state.referrers(subject, found.number)
    kept = (state.version(*place) for place in places)
    return sorted({each.id for each in kept if each is not None and not each.is_deleted})


def with_metadata(
    state: RegistryState, subject: str, wanted: Callable[[dict[str, str]], bool], *, deleted: bool
) -> dict[str, Any]:
    """The latest version of a subject whose metadata has the wanted properties.

    Raises RegistryError 40401 or 40403 if there is none.
    """
    found = listed(state, subject, deleted=deleted)
    if not found:
        raise subject_not_found(subject)
    for each in reversed(found):
        if wanted(properties_of(state.schemas[each.id])):
            return version_to_json(state, subject, each)
    raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")


def properties_of(schema: StoredSchema) -> dict[str, str]:
    metadata = read_document(schema.metadata) if schema.metadata else {}
    found: dict[str, str] = metadata.get("properties") or {}
    return found


def config(state: RegistryState, subject: str | None, *, or_global: bool) -> dict[str, Any]:
    """The settings of a subject, or of all; RegistryError 40408 if the subject has none."""
    if subject is None or (or_global and subject not in state.configs):
        return {"compatibilityLevel": DEFAULT_LEVEL, **_config(state, None)}
    if subject not in state.configs:
        raise RegistryError(
            NO_CONFIG_OF_SUBJECT,
            f"Subject {quoted(subject)} does not have subject-level compatibility configured",
        )
    return _config(state, subject)


def settings_of(state: RegistryState, subject: str) -> dict[str, Any]:
    """The settings in force for a subject: its own before those of all."""
    whole = {"compatibilityLevel": DEFAULT_LEVEL, **_config(state, None)}
    return {**whole, **_config(state, subject)}


def mode(state: RegistryState, subject: str | None, *, or_global: bool) -> str:
    """The mode of a subject, or of all; RegistryError 40409 if the subject has none."""
    if subject is not None and subject in state.modes:
        return state.modes[subject]
    if subject is not None and not or_global:
        raise RegistryError(
            NO_MODE_OF_SUBJECT,
            f"Subject {quoted(subject)} does not have subject-level mode configured",
        )
    return state.modes.get(None, DEFAULT_MODE)


def _config(state: RegistryState, subject: str | None) -> dict[str, Any]:
    text = state.configs.get(subject)
    found: dict[str, Any] = {} if text is None else read_document(text)
    return found


def _is_there(state: RegistryState, subject: str, number: int, deleted: bool) -> bool:
    found = state.version(subject, number)
    return found is not None and (deleted or not found.is_deleted)


def _shown(found: Version, deleted: bool, deleted_only: bool) -> bool:
    return found.is_deleted if deleted_only else deleted or not found.is_deleted
