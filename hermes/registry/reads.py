"""The responses to calls that only read, from a state and the call's parameters."""

from typing import Any
from urllib.parse import unquote

from hermes.registry import lookups
from hermes.registry.associations import associated
from hermes.registry.call_parameters import CallParameters
from hermes.registry.entities import StoredSchema
from hermes.registry.errors import INVALID_REQUEST, RegistryError
from hermes.registry.limits import LISTED_SCHEMAS
from hermes.registry.state import RegistryState


def schema(state: RegistryState, call: CallParameters) -> Any:
    schema_id, subject = call.number(), call.text("subject")
    schema = lookups.schema_of_id(state, schema_id)
    check_format(call, schema)
    found = {"guid": schema.guid, **schema.to_json()}
    if subject:
        places = lookups.uses(state, schema_id, subject, deleted=True)
        if places:
            found["subject"], found["version"] = places[-1]
            found["id"] = schema_id  # confluent-kafka keeps this as the version's answer
    if call.flag("fetchMaxId"):
        found["maxId"] = state.last_id
    return found


def schema_by_guid(state: RegistryState, call: CallParameters) -> Any:
    schema_id = lookups.id_of_guid(state, call.parts[0])
    return {"id": schema_id, "guid": call.parts[0].lower(), **state.schemas[schema_id].to_json()}


def uses(state: RegistryState, call: CallParameters) -> list[tuple[str, int]]:
    return lookups.uses(
        state, call.number(), call.text("subject") or None, deleted=call.flag("deleted")
    )


def schemas(state: RegistryState, call: CallParameters) -> Any:
    deleted, latest = call.flag("deleted"), call.flag("latestOnly")
    names = lookups.subjects(state, call.text("subjectPrefix") or "", deleted=deleted)
    places = []
    for name in names:
        found = lookups.listed(state, name, deleted=deleted)
        places += [(name, each) for each in (found[-1:] if latest else found)]
    return [
        lookups.version_to_json(state, name, each)
        for name, each in call.page(places, LISTED_SCHEMAS)
    ]


def subjects(state: RegistryState, call: CallParameters) -> Any:
    return call.page(
        lookups.subjects(
            state,
            call.text("subjectPrefix") or "",
            deleted=call.flag("deleted"),
            deleted_only=call.flag("deletedOnly", "deleted_only"),
        )
    )


def versions(state: RegistryState, call: CallParameters) -> Any:
    return call.page(
        lookups.versions(
            state,
            call.subject,
            deleted=call.flag("deleted"),
            deleted_only=call.flag("deletedOnly", "deleted_only"),
        )
    )


def version(state: RegistryState, call: CallParameters) -> Any:
    number = lookups.version_number(call.parts[1])
    found = lookups.version(state, call.subject, number, deleted=call.flag("deleted"))
    check_format(call, state.schemas[found.id])
    return lookups.version_to_json(state, call.subject, found)


def referrers(state: RegistryState, call: CallParameters) -> Any:
    number = lookups.version_number(call.parts[1])
    return call.page(lookups.referrer_ids(state, call.subject, number))


def with_metadata(state: RegistryState, call: CallParameters) -> Any:
    # confluent-kafka escapes them twice.
    wanted = {
        (key, value) for key, value in zip(call.texts("key"), call.texts("value"), strict=False)
    }

    def has(properties: dict[str, str]) -> bool:
        return all(
            properties.get(key) == value or properties.get(unquote(key)) == unquote(value)
            for key, value in wanted
        )

    return lookups.with_metadata(state, call.subject, has, deleted=call.flag("deleted"))


def config(state: RegistryState, call: CallParameters) -> Any:
    subject = call.subject_or_all
    return lookups.config(state, subject, or_global=call.flag("defaultToGlobal"))


def mode(state: RegistryState, call: CallParameters) -> Any:
    subject = call.subject_or_all
    return {"mode": lookups.mode(state, subject, or_global=call.flag("defaultToGlobal"))}


def associations(state: RegistryState, call: CallParameters, **wanted: str) -> Any:
    return call.page(
        associated(
            state,
            **wanted,
            resource_type=call.text("resourceType"),
            kinds=call.texts("associationType"),
        )
    )


def check_format(call: CallParameters, schema: StoredSchema) -> None:
    """Refuse, with the code 422, to put a schema together with what it refers to."""
    if call.text("format") == "resolved" and schema.references:
        raise RegistryError(
            INVALID_REQUEST,
            "format=resolved is not served here: ask for the references, and put them together",
        )
