"""Every call that a registry understands: its method, its path, and what answers it.

The paths, parameters and bodies are those of Confluent's registry, as a table in docs/registry.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hermes._version import __version__
from hermes.registry import lookups, reads
from hermes.registry.associations import (
    Associate,
    Dissociate,
    only_if_any,
    read_associations,
)
from hermes.registry.call_parameters import CallParameters, optional_number, read_body_draft
from hermes.registry.entities import SCHEMA_TYPES
from hermes.registry.mutations import (
    DeleteConfig,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    SetConfig,
    SetMode,
)
from hermes.registry.registration import RegisterSchema
from hermes.registry.schema_queries import CompatibilityCheck, SchemaLookup
from hermes.registry.state import RegistryState
from hermes.registry.writer import Mutation


@dataclass(frozen=True, slots=True)
class RawText:
    """An answer that is sent as it is: a schema's text."""

    text: str


@dataclass(frozen=True, slots=True)
class RestRoute:
    """One kind of call.

    Attributes:
        pattern: the segments of the path; `*` stands for any.
        read: answers from the state, at once: the state doesn't change meanwhile.
        change: makes the change that the call wants.
        study: makes what takes longer, on an excerpt of the state.
    """

    method: str
    pattern: tuple[str, ...]
    kind: str
    read: Callable[[RegistryState, CallParameters], Any] | None = None
    change: Callable[[CallParameters], Mutation] | None = None
    study: Callable[[CallParameters], "SchemaLookup | CompatibilityCheck"] | None = None

    def parts(self, path: tuple[str, ...]) -> tuple[str, ...] | None:
        if len(path) != len(self.pattern):
            return None
        pairs = list(zip(self.pattern, path, strict=True))
        if any(each not in ("*", given) for each, given in pairs):
            return None
        return tuple(given for each, given in pairs if each == "*")


def _register(call: CallParameters) -> Mutation:
    body = call.body()
    return RegisterSchema(
        call.subject,
        read_body_draft(body),
        call.flag("normalize"),
        optional_number(body, "id"),
        optional_number(body, "version"),
    )


def _lookup(call: CallParameters) -> SchemaLookup:
    draft = read_body_draft(call.body())
    return SchemaLookup(call.subject, draft, call.flag("normalize"), call.flag("deleted"))


def _compare(call: CallParameters) -> CompatibilityCheck:
    number = lookups.version_number(call.parts[1]) if len(call.parts) > 1 else None
    draft = read_body_draft(call.body())
    normalize, verbose = call.flag("normalize"), call.flag("verbose")
    return CompatibilityCheck(call.subject, draft, normalize, number, verbose)


def _set_mode(call: CallParameters) -> Mutation:
    return SetMode(call.subject_or_all, call.body().get("mode"), call.flag("force"))


def _dissociate(call: CallParameters) -> Mutation:
    return Dissociate(
        call.parts[0],
        call.text("resourceType"),
        tuple(call.texts("associationType")),
        call.flag("cascadeLifecycle"),
    )


_SUBJECT = ("subjects", "*")
_VERSIONS = (*_SUBJECT, "versions")
_VERSION = (*_VERSIONS, "*")
_ID = ("schemas", "ids", "*")
_RESOURCES = ("associations", "resources")

ROUTES = (
    RestRoute("GET", (), "other", read=lambda state, call: {}),
    RestRoute("GET", ("contexts",), "other", read=lambda state, call: call.page(["."])),
    RestRoute(
        "GET",
        ("v1", "metadata", "version"),
        "other",
        read=lambda state, call: {"version": __version__, "commitId": ""},
    ),
    RestRoute("GET", ("schemas",), "subjects", read=reads.schemas),
    RestRoute("GET", ("schemas", "types"), "other", read=lambda state, call: list(SCHEMA_TYPES)),
    RestRoute("GET", _ID, "schema", read=reads.schema),
    RestRoute(
        "GET",
        (*_ID, "schema"),
        "schema",
        read=lambda state, call: RawText(lookups.schema_of_id(state, call.number()).text),
    ),
    RestRoute(
        "GET",
        (*_ID, "subjects"),
        "schema",
        read=lambda state, call: call.page(sorted({name for name, _ in reads.uses(state, call)})),
    ),
    RestRoute(
        "GET",
        (*_ID, "versions"),
        "schema",
        read=lambda state, call: call.page(
            [{"subject": name, "version": number} for name, number in reads.uses(state, call)]
        ),
    ),
    RestRoute("GET", ("schemas", "guids", "*"), "schema", read=reads.schema_by_guid),
    RestRoute("GET", ("subjects",), "subjects", read=reads.subjects),
    RestRoute("POST", _SUBJECT, "lookup", study=_lookup),
    RestRoute(
        "DELETE",
        _SUBJECT,
        "delete",
        change=lambda call: DeleteSubject(call.subject, call.flag("permanent")),
    ),
    RestRoute("GET", (*_SUBJECT, "metadata"), "versions", read=reads.with_metadata),
    RestRoute("GET", _VERSIONS, "versions", read=reads.versions),
    RestRoute("POST", _VERSIONS, "register", change=_register),
    RestRoute("GET", _VERSION, "versions", read=reads.version),
    RestRoute(
        "GET",
        (*_VERSION, "schema"),
        "versions",
        read=lambda state, call: RawText(reads.version(state, call)["schema"]),
    ),
    RestRoute("GET", (*_VERSION, "referencedby"), "versions", read=reads.referrers),
    RestRoute(
        "DELETE",
        _VERSION,
        "delete",
        change=lambda call: DeleteVersion(
            call.subject, lookups.version_number(call.parts[1]), call.flag("permanent")
        ),
    ),
    RestRoute("POST", ("compatibility", *_VERSIONS), "compatibility", study=_compare),
    RestRoute("POST", ("compatibility", *_VERSION), "compatibility", study=_compare),
    *(
        route
        for path in (("config",), ("config", "*"))
        for route in (
            RestRoute("GET", path, "config", read=reads.config),
            RestRoute(
                "PUT",
                path,
                "config",
                change=lambda call: SetConfig(call.subject_or_all, call.body()),
            ),
            RestRoute(
                "DELETE",
                path,
                "config",
                change=lambda call: DeleteConfig(call.subject_or_all),
            ),
        )
    ),
    *(
        route
        for path in (("mode",), ("mode", "*"))
        for route in (
            RestRoute("GET", path, "mode", read=reads.mode),
            RestRoute("PUT", path, "mode", change=_set_mode),
            RestRoute("DELETE", path, "mode", change=lambda call: DeleteMode(call.subject_or_all)),
        )
    ),
    RestRoute(
        "POST",
        ("associations",),
        "associations",
        change=lambda call: Associate(read_associations(call.body()), False),
    ),
    RestRoute(
        "PUT",
        ("associations",),
        "associations",
        change=lambda call: Associate(read_associations(call.body()), True),
    ),
    RestRoute(
        "GET",
        (*_RESOURCES, "*"),
        "associations",
        read=lambda state, call: only_if_any(
            reads.associations(state, call, resource_id=call.parts[0]), call.parts[0]
        ),
    ),
    RestRoute(
        "GET",
        (*_RESOURCES, "*", "*"),
        "associations",
        read=lambda state, call: reads.associations(
            state, call, namespace=call.parts[0], name=call.parts[1]
        ),
    ),
    RestRoute(
        "GET",
        ("associations", "subjects", "*"),
        "associations",
        read=lambda state, call: reads.associations(state, call, subject=call.subject),
    ),
    RestRoute("DELETE", (*_RESOURCES, "*"), "associations", change=_dissociate),
)
