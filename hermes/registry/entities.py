"""What a registry keeps: schemas, the subjects' versions of them, and associations.

All are immutable, so that states can share them.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from hermes.registry.documents import read_document, write_document

AVRO: Final = "AVRO"
JSON: Final = "JSON"
SCHEMA_TYPES: Final = (JSON, AVRO)


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema's use of another one; `version`: of the subject under which that is registered.

    `name`: by which the schema's text calls it: an Avro type's full name, a JSON Schema's URI.
    """

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class StoredSchema:
    """A schema as it is registered; two that are equal get one id.

    Attributes:
        text: Avro's in its normal form, JSON Schema's as it came.
        references: the schemas that it uses directly.
        metadata: Confluent's, as JSON text with sorted keys; empty for none. Kept, not understood;
            so is `rule_set`.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    rule_set: str = ""

    @cached_property
    def identity(self) -> bytes:
        """16 bytes that two schemas share if they are the same, spaces aside."""
        text = self.text if self.type == AVRO else write_document(read_document(self.text))
        references = [[each.name, each.subject, each.version] for each in self.references]
        whole = [self.type, text, references, self.metadata, self.rule_set]
        return hashlib.sha256(write_document(whole).encode()).digest()[:16]

    @property
    def guid(self) -> str:
        """The identity as a UUID: the same in every registry."""
        return str(UUID(bytes=self.identity))

    def to_json(self) -> dict[str, Any]:
        """As a response has it; defaults are left out, as Confluent's registry does."""
        found: dict[str, Any] = {"schema": self.text}
        if self.type != AVRO:
            found["schemaType"] = self.type
        if self.references:
            found["references"] = [each.to_json() for each in self.references]
        if self.metadata:
            found["metadata"] = read_document(self.metadata)
        if self.rule_set:
            found["ruleSet"] = read_document(self.rule_set)
        return found


def schema_from_json(found: dict[str, Any]) -> StoredSchema:
    """The opposite of `StoredSchema.to_json`; KeyError, TypeError, ValueError for anything else."""
    return StoredSchema(
        found.get("schemaType", AVRO),
        found["schema"],
        references_from_json(found.get("references", ())),
        document_text(found.get("metadata")),
        document_text(found.get("ruleSet")),
    )


def references_from_json(found: Iterable[dict[str, Any]]) -> tuple[Reference, ...]:
    return tuple(Reference(each["name"], each["subject"], each["version"]) for each in found)


def document_text(value: dict[str, Any] | None) -> str:
    return write_document(value, sort_keys=True) if value else ""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject, from 1 on; when deleted softly, those with its id still get it."""

    number: int
    id: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Association:
    """A resource, for instance a topic, has its schemas under a subject.

    Attributes:
        resource_id: for instance `<namespace>:<name>`.
        resource_namespace: where names of resources are unique: a cluster.
        resource_type: `topic`, mostly.
        kind: what of the resource: `key` or `value`.
        lifecycle: WEAK, or STRONG: the subject is the resource's own and goes with it.
        is_frozen: whether it can't be changed.
    """

    resource_id: str
    resource_name: str
    resource_namespace: str
    resource_type: str
    kind: str
    subject: str
    lifecycle: str
    is_frozen: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "resourceName": self.resource_name,
            "resourceNamespace": self.resource_namespace,
            "resourceId": self.resource_id,
            "resourceType": self.resource_type,
            "associationType": self.kind,
            "lifecycle": self.lifecycle,
            "frozen": self.is_frozen,
        }


def association_from_json(found: dict[str, Any]) -> Association:
    return Association(
        found["resourceId"],
        found["resourceName"],
        found["resourceNamespace"],
        found["resourceType"],
        found["associationType"],
        found["subject"],
        found["lifecycle"],
        found["frozen"],
    )
