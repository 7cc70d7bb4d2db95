"""What has happened to a registry, as its log keeps it: one JSON object an event.

Applied in order to an empty state, they give the registry's state. An event says what was decided,
never what was asked for: readers apply it without checking anything again.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final

from hermes.quoting import quoted
from hermes.registry.documents import read_document, write_document
from hermes.registry.entities import (
    Association,
    StoredSchema,
    association_from_json,
    schema_from_json,
)


@dataclass(frozen=True, slots=True)
class SchemaRegistered:
    """A subject has a new version; `id` is new, or that of the same schema elsewhere."""

    subject: str
    version: int
    id: int
    schema: StoredSchema


@dataclass(frozen=True, slots=True)
class VersionDeleted:
    subject: str
    version: int
    permanent: bool


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    subject: str
    permanent: bool


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """The settings of a subject have been set or removed; of all without their own, if it is None.

    `config` is JSON text with sorted keys, or None when removed.
    """

    subject: str | None
    config: str | None


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """The mode of a subject, or of all, has been set or removed; see `ConfigChanged`."""

    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class AssociationsMade:
    """Resources have subjects; an older association of the same resource and kind is replaced."""

    associations: tuple[Association, ...]


@dataclass(frozen=True, slots=True)
class AssociationsRemoved:
    """Kinds of a resource have no subject any more; `subjects` were deleted with them, softly."""

    resource_id: str
    resource_type: str
    kinds: tuple[str, ...]
    subjects: tuple[str, ...] = ()


Event = (
    SchemaRegistered
    | VersionDeleted
    | SubjectDeleted
    | ConfigChanged
    | ModeChanged
    | AssociationsMade
    | AssociationsRemoved
)

_KINDS: Final[dict[str, Any]] = {
    "schema-registered": SchemaRegistered,
    "version-deleted": VersionDeleted,
    "subject-deleted": SubjectDeleted,
    "config-changed": ConfigChanged,
    "mode-changed": ModeChanged,
    "associations-made": AssociationsMade,
    "associations-removed": AssociationsRemoved,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object; its kind is at the key `event`."""
    fields = asdict(event)
    if isinstance(event, SchemaRegistered):
        fields["schema"] = event.schema.to_json()
    elif isinstance(event, AssociationsMade):
        fields["associations"] = [each.to_json() for each in event.associations]
    return {"event": _NAMES[type(event)], **fields}


def event_from_json(found: Any) -> Event:
    """The opposite of `event_to_json`; ValueError for what this version of Hermes doesn't know."""
    try:
        fields = dict(found)
        name = fields.pop("event")
        kind = _KINDS.get(name)
        if kind is None:
            raise ValueError(
                f"the registry's log has an event {quoted(name)}, which this Hermes doesn't know: "
                "it was written by a newer one"
            )
        if kind is SchemaRegistered:
            fields["schema"] = schema_from_json(fields["schema"])
        elif kind is AssociationsMade:
            fields["associations"] = tuple(map(association_from_json, fields["associations"]))
        elif kind is AssociationsRemoved:
            fields["kinds"] = tuple(fields["kinds"])
            fields["subjects"] = tuple(fields["subjects"])
        made: Event = kind(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the registry's log has a malformed event: {error!r}") from error
    return made


def encode_event(event: Event) -> bytes:
    return write_document(event_to_json(event)).encode()


def decode_event(data: bytes) -> Event:
    return event_from_json(read_document(data))
