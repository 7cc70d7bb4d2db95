"""Calls that look at a schema without registering it: does it exist, would it be compatible?

They take longer than a look into a table, so they are answered on an excerpt of the state.
"""

from dataclasses import dataclass
from typing import Any

from hermes.registry.drafts import Draft, read_draft
from hermes.registry.errors import SCHEMA_NOT_FOUND, RegistryError, subject_not_found
from hermes.registry.lookups import listed, version, version_to_json
from hermes.registry.registration import incompatibilities, normalizes
from hermes.registry.state import RegistryState


@dataclass(frozen=True, slots=True)
class SchemaLookup:
    """Find the version of a subject that has a schema; `deleted` includes those deleted softly."""

    subject: str
    draft: Draft
    normalize: bool
    deleted: bool

    def answer(self, state: RegistryState) -> Any:
        """The version; RegistryError 40401 or 40403 if there is none."""
        versions = listed(state, self.subject, deleted=self.deleted)
        if not versions:
            raise subject_not_found(self.subject)
        schema = read_draft(self.draft, state, normalize=normalizes(state, self))
        for each in reversed(versions):
            if state.schemas[each.id].identity == schema.identity:
                return version_to_json(state, self.subject, each)
        raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")


@dataclass(frozen=True, slots=True)
class CompatibilityCheck:
    """Say whether a schema is compatible, and if `verbose` why not.

    `number`: the version to compare with, -1 for the latest, which need not exist; None for those
    that the subject's settings say.
    """

    subject: str
    draft: Draft
    normalize: bool
    number: int | None
    verbose: bool

    def answer(self, state: RegistryState) -> Any:
        versions = None
        if self.number == -1:
            versions = listed(state, self.subject)[-1:]
        elif self.number is not None:
            versions = [version(state, self.subject, self.number)]
        schema = read_draft(self.draft, state, normalize=normalizes(state, self))
        reasons = incompatibilities(state, self.subject, schema, versions)
        answer: dict[str, Any] = {"is_compatible": not reasons}
        if self.verbose:
            answer["messages"] = reasons
        return answer
