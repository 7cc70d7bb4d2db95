"""A registry's state: a pure function of its events.

Every process that has applied the same events has the same state; nothing here looks at a clock, a
file or chance. Not thread-safe.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from hermes.registry.entities import (
    Association,
    Reference,
    StoredSchema,
    Version,
    association_from_json,
    schema_from_json,
)
from hermes.registry.events import (
    AssociationsMade,
    AssociationsRemoved,
    ConfigChanged,
    Event,
    ModeChanged,
    SchemaRegistered,
    SubjectDeleted,
    VersionDeleted,
)

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"

_FORMAT: Final = 1


class RegistryState:
    """What has been registered, set and deleted.

    Attributes:
        last_id: the highest id that was ever given out; the next one is higher.
        schemas: by id, those that some version has, deleted softly or not.
        configs: settings as JSON text, by subject; None for the global ones. So `modes`.
        associations: by resource id, resource type and kind.
    """

    def __init__(self) -> None:
        self.last_id = 0
        self.schemas: dict[int, StoredSchema] = {}
        self.configs: dict[str | None, str] = {}
        self.modes: dict[str | None, str] = {}
        self.associations: dict[tuple[str, str, str], Association] = {}
        self._ids: dict[bytes, int] = {}
        self._subjects: dict[str, dict[int, Version]] = {}
        self._uses: dict[int, set[tuple[str, int]]] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}

    @property
    def schema_count(self) -> int:
        return len(self.schemas)

    @property
    def subject_count(self) -> int:
        return len(self._subjects)

    # -- looking things up ----------------------------------------------------------------------

    def id_of(self, identity: bytes) -> int | None:
        return self._ids.get(identity)

    def subjects(self) -> Iterator[str]:
        """Those that have a version, deleted softly or not, in no order."""
        return iter(self._subjects)

    def versions(self, subject: str) -> list[Version]:
        """A subject's versions, the oldest first, those deleted softly included."""
        return sorted(self._subjects.get(subject, {}).values(), key=lambda each: each.number)

    def live_versions(self, subject: str) -> list[Version]:
        return [each for each in self.versions(subject) if not each.is_deleted]

    def is_live(self, subject: str) -> bool:
        return any(not each.is_deleted for each in self._subjects.get(subject, {}).values())

    def version(self, subject: str, number: int) -> Version | None:
        return self._subjects.get(subject, {}).get(number)

    def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that have an id, sorted, those deleted softly included."""
        return sorted(self._uses.get(schema_id, ()))

    def referrers(self, subject: str, version: int) -> list[tuple[str, int]]:
        """The subjects and versions whose schemas refer to this one, likewise."""
        return sorted(self._referrers.get((subject, version), ()))

    # -- changing -------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Change the state by an event; ValueError, and no change, if it contradicts the state."""
        match event:
            case SchemaRegistered():
                self._register(event)
            case VersionDeleted(subject, version, permanent):
                self._delete(subject, [version], permanent)
            case SubjectDeleted(subject, permanent):
                numbers = list(self._subjects.get(subject, ()))
                self._delete(subject, numbers, permanent)
            case ConfigChanged(subject, config):
                _set(self.configs, subject, config)
            case ModeChanged(subject, mode):
                _set(self.modes, subject, mode)
            case AssociationsMade(associations):
                for each in associations:
                    key = each.resource_id, each.resource_type, each.kind
                    self.associations[key] = each
            case AssociationsRemoved(resource_id, resource_type, kinds, subjects):
                if missing := [each for each in subjects if each not in self._subjects]:
                    raise ValueError(f"there is no subject {missing[0]!r} to delete")
                for subject in subjects:
                    self._delete(subject, list(self._subjects.get(subject, ())), False)
                for kind in kinds:
                    self.associations.pop((resource_id, resource_type, kind), None)

    def _register(self, event: SchemaRegistered) -> None:
        schema, place = event.schema, (event.subject, event.version)
        known = self.schemas.get(event.id)
        if known is not None and known.identity != schema.identity:
            raise ValueError(f"the id {event.id} is given to two schemas")
        if self._ids.get(schema.identity, event.id) != event.id:
            raise ValueError(f"one schema is given two ids, {event.id} the second")
        present = self.version(*place)
        if present is not None and (present.id != event.id or not present.is_deleted):
            raise ValueError(f"version {event.version} of {event.subject!r} is given twice")
        self.schemas[event.id] = schema
        self._ids[schema.identity] = event.id
        self.last_id = max(self.last_id, event.id)
        self._subjects.setdefault(event.subject, {})[event.version] = Version(
            event.version, event.id
        )
        self._uses.setdefault(event.id, set()).add(place)
        for each in schema.references:
            self._referrers.setdefault((each.subject, each.version), set()).add(place)

    def _delete(self, subject: str, numbers: list[int], permanent: bool) -> None:
        versions = self._subjects.get(subject, {})
        missing = [number for number in numbers if number not in versions]
        if missing or not versions:
            raise ValueError(f"{subject!r} has no version to delete: {missing}")
        for number in numbers:
            version = versions[number]
            if permanent:
                del versions[number]
                self._forget(subject, version)
            else:
                versions[number] = Version(number, version.id, is_deleted=True)
        if not versions:
            del self._subjects[subject]
        if all(each.is_deleted for each in versions.values()):
            self.configs.pop(subject, None)
            self.modes.pop(subject, None)

    def _forget(self, subject: str, version: Version) -> None:
        schema, place = self.schemas[version.id], (subject, version.number)
        for each in schema.references:
            referrers = self._referrers.get((each.subject, each.version), set())
            referrers.discard(place)
            if not referrers:
                self._referrers.pop((each.subject, each.version), None)
        uses = self._uses[version.id]
        uses.discard(place)
        if not uses:
            del self._uses[version.id], self.schemas[version.id], self._ids[schema.identity]

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> "RegistryState":
        made = RegistryState()
        made.last_id = self.last_id
        made.schemas = dict(self.schemas)
        made.configs, made.modes = dict(self.configs), dict(self.modes)
        made.associations = dict(self.associations)
        made._ids = dict(self._ids)
        made._subjects = {name: dict(versions) for name, versions in self._subjects.items()}
        made._uses = {schema_id: set(places) for schema_id, places in self._uses.items()}
        made._referrers = {place: set(places) for place, places in self._referrers.items()}
        return made

    def excerpt(self, subject: str, references: Iterable[Reference]) -> "RegistryState":
        """What decides about a schema, so that nobody has to wait meanwhile.

        Args:
            subject: its versions and settings are included.
            references: of a new schema; a version of -1 means the latest.

        Returns:
            A state of its own, with all schemas that these lead to and the same highest id.
        """
        made = RegistryState()
        made.last_id = self.last_id
        for settings, ours in ((made.configs, self.configs), (made.modes, self.modes)):
            settings.update({key: ours[key] for key in (None, subject) if key in ours})
        places = [(subject, number) for number in self._subjects.get(subject, ())]
        for each in references:
            numbers = [each.version] if each.version > 0 else self._subjects.get(each.subject, ())
            places += [(each.subject, number) for number in numbers]
        seen = set()
        while places:
            place = places.pop()
            version = self.version(*place)
            if place in seen or version is None:
                continue
            seen.add(place)
            schema = self.schemas[version.id]
            made.schemas[version.id] = schema
            made._ids[schema.identity] = version.id
            made._subjects.setdefault(place[0], {})[place[1]] = version
            places += [(each.subject, each.version) for each in schema.references]
        return made

    def to_json(self) -> dict[str, Any]:
        """The whole state, for a snapshot; the same state gives the same object."""
        return {
            "format": _FORMAT,
            "lastId": self.last_id,
            "schemas": [[key, self.schemas[key].to_json()] for key in sorted(self.schemas)],
            "subjects": [
                [name, [[each.number, each.id, each.is_deleted] for each in self.versions(name)]]
                for name in sorted(self._subjects)
            ],
            "configs": _pairs(self.configs),
            "modes": _pairs(self.modes),
            "associations": [self.associations[key].to_json() for key in sorted(self.associations)],
        }

    @classmethod
    def from_json(cls, found: Any) -> "RegistryState":
        """The opposite of `to_json`; ValueError for a newer Hermes', say: read the log instead."""
        made = cls()
        try:
            if found["format"] != _FORMAT:
                raise ValueError(f"the snapshot has format {found['format']}, not {_FORMAT}")
            schemas = {key: schema_from_json(value) for key, value in found["schemas"]}
            for subject, versions in found["subjects"]:
                for number, schema_id, is_deleted in versions:
                    made._register(SchemaRegistered(subject, number, schema_id, schemas[schema_id]))
                    if is_deleted:
                        made._subjects[subject][number] = Version(number, schema_id, True)
            made.last_id = found["lastId"]
            made.configs, made.modes = dict(found["configs"]), dict(found["modes"])
            for each in map(association_from_json, found["associations"]):
                made.apply(AssociationsMade((each,)))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the snapshot is malformed: {error!r}") from error
        return made


def _set(settings: dict[str | None, str], subject: str | None, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value


def _pairs(settings: dict[str | None, str]) -> list[list[str | None]]:
    return [[key, settings[key]] for key in sorted(settings, key=lambda each: each or "")]
