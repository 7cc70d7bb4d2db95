"""The calls that delete versions and subjects, and change settings and modes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.quoting import quoted
from hermes.registry.documents import write_document
from hermes.registry.errors import (
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_REQUEST,
    REFERENCE_EXISTS,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryError,
    subject_not_found,
    version_not_found,
)
from hermes.registry.events import (
    ConfigChanged,
    ModeChanged,
    SubjectDeleted,
    VersionDeleted,
)
from hermes.registry.lookups import LATEST_VERSION, check_subject, config, mode
from hermes.registry.registration import (
    IMPORT,
    LEVELS,
    MODES,
    check_writable,
    not_permitted,
)
from hermes.registry.state import DEFAULT_LEVEL, RegistryState
from hermes.registry.writer import MutationResult

_SETTINGS = ("compatibilityLevel", "compatibilityGroup", "normalize")


@dataclass(frozen=True, slots=True)
class DeleteVersion:
    """Delete a version, -1 being the latest: softly, or for good what has been deleted softly.

    A version to which another schema refers is kept.
    """

    subject: str
    version: int
    permanent: bool = False

    def decide(self, state: RegistryState) -> MutationResult:
        check_writable(state, self.subject)
        versions = state.versions(self.subject)
        if not versions:
            raise subject_not_found(self.subject)
        if self.version == LATEST_VERSION:
            live = [each for each in versions if not each.is_deleted]
            if not live and not self.permanent:
                raise subject_not_found(self.subject)
            number = (live or versions)[-1].number
        else:
            number = self.version
        found = state.version(self.subject, number)
        if found is None:
            raise version_not_found(number)
        what = f"Subject {quoted(self.subject)} Version {number} was"
        if found.is_deleted and not self.permanent:
            raise RegistryError(
                VERSION_SOFT_DELETED,
                f"{what} soft deleted. Set permanent=true to delete permanently",
            )
        if not found.is_deleted and self.permanent:
            raise RegistryError(
                VERSION_NOT_SOFT_DELETED,
                f"{what} not deleted first before being permanently deleted",
            )
        _check_unused(state, self.subject, number, self.permanent)
        return MutationResult(VersionDeleted(self.subject, number, self.permanent), number)


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    subject: str
    permanent: bool = False

    def decide(self, state: RegistryState) -> MutationResult:
        check_writable(state, self.subject)
        versions = state.versions(self.subject)
        live = [each for each in versions if not each.is_deleted]
        if not versions:
            raise subject_not_found(self.subject)
        what = f"Subject {quoted(self.subject)} was"
        if not live and not self.permanent:
            raise RegistryError(
                SUBJECT_SOFT_DELETED,
                f"{what} soft deleted. Set permanent=true to delete permanently",
            )
        if live and self.permanent:
            raise RegistryError(
                SUBJECT_NOT_SOFT_DELETED,
                f"{what} not deleted first before being permanently deleted",
            )
        deleted = [each.number for each in (versions if self.permanent else live)]
        for number in deleted:
            _check_unused(state, self.subject, number, self.permanent, besides=(self.subject,))
        return MutationResult(SubjectDeleted(self.subject, self.permanent), deleted)


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Change settings of a subject, or (None) of all without their own. A null removes one."""

    subject: str | None
    settings: Mapping[str, Any]

    def decide(self, state: RegistryState) -> MutationResult:
        if self.subject is not None:
            check_subject(self.subject)
        given = dict(self.settings)
        levels = [given.pop(key) for key in ("compatibility", "compatibilityLevel") if key in given]
        if levels:
            given["compatibilityLevel"] = _level(next(filter(None, levels), None))
        _check_settings(given)
        kept = config(state, self.subject, or_global=False) if _has(state, self.subject) else {}
        kept = {key: value for key, value in {**kept, **given}.items() if value is not None}
        shown = {**given}
        if "compatibilityLevel" in shown:
            shown = {"compatibility": shown.pop("compatibilityLevel"), **shown}
        text = write_document(kept, sort_keys=True)
        if state.configs.get(self.subject) == text:
            return MutationResult(None, shown)
        return MutationResult(ConfigChanged(self.subject, text), shown)


@dataclass(frozen=True, slots=True)
class DeleteConfig:
    """Remove the settings of a subject, or reset those of all; the answer has the old ones."""

    subject: str | None

    def decide(self, state: RegistryState) -> MutationResult:
        if self.subject is None:
            event = ConfigChanged(None, None) if None in state.configs else None
            return MutationResult(event, {"compatibilityLevel": DEFAULT_LEVEL})
        if self.subject not in state.configs:
            raise subject_not_found(self.subject)
        return MutationResult(
            ConfigChanged(self.subject, None), config(state, self.subject, or_global=False)
        )


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set the mode of a subject; of all that have none of their own, if it is None.

    `force`: whether IMPORT may be set where schemas are, whose ids could be in the way.
    """

    subject: str | None
    mode: Any
    force: bool = False

    def decide(self, state: RegistryState) -> MutationResult:
        if self.subject is not None:
            check_subject(self.subject)
        wanted = self.mode.upper() if isinstance(self.mode, str) else self.mode
        if wanted not in MODES:
            raise RegistryError(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
        if wanted == IMPORT and not self.force:
            names = state.subjects() if self.subject is None else [self.subject]
            if any(map(state.is_live, names)):
                raise not_permitted(
                    "Cannot import since found existing subjects: set force=true to import anyway"
                )
        if state.modes.get(self.subject) == wanted:
            return MutationResult(None, {"mode": wanted})
        return MutationResult(ModeChanged(self.subject, wanted), {"mode": wanted})


@dataclass(frozen=True, slots=True)
class DeleteMode:
    """Remove the mode of a subject, or reset that of all; the answer has the old one."""

    subject: str | None

    def decide(self, state: RegistryState) -> MutationResult:
        if self.subject is None:
            event = ModeChanged(None, None) if None in state.modes else None
            return MutationResult(event, {"mode": mode(state, None, or_global=True)})
        if self.subject not in state.modes:
            raise subject_not_found(self.subject)
        return MutationResult(ModeChanged(self.subject, None), {"mode": state.modes[self.subject]})


def check_deletable(state: RegistryState, subjects: Collection[str]) -> None:
    """Refuse what DeleteSubject does, where live subjects are to be deleted softly, together."""
    for subject in subjects:
        check_writable(state, subject)
        for each in state.live_versions(subject):
            _check_unused(state, subject, each.number, False, besides=subjects)


def _check_unused(
    state: RegistryState,
    subject: str,
    number: int,
    permanent: bool,
    besides: Collection[str] = (),
) -> None:
    for name, version in state.referrers(subject, number):
        found = state.version(name, version)
        if found is not None and name not in besides and (permanent or not found.is_deleted):
            raise RegistryError(
                REFERENCE_EXISTS,
                f"One or more references exist to version {number} of {quoted(subject)}: version "
                f"{version} of {quoted(name)}{' (soft deleted)' if found.is_deleted else ''} "
                "refers to it",
            )


def _level(given: Any) -> str | None:
    if given is None:
        return None
    level = given.upper() if isinstance(given, str) else ""
    if level not in LEVELS:
        raise RegistryError(
            INVALID_LEVEL,
            "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive",
        )
    return level


def _has(state: RegistryState, subject: str | None) -> bool:
    return subject is None or subject in state.configs


def _check_settings(given: Mapping[str, Any]) -> None:
    unknown = [key for key, value in given.items() if key not in _SETTINGS and value is not None]
    if unknown:
        raise RegistryError(
            INVALID_REQUEST,
            f"the setting {quoted(unknown[0])} is not served here, but compatibility, "
            "compatibilityGroup and normalize",
        )
    group, normalize = given.get("compatibilityGroup"), given.get("normalize")
    if group is not None and not isinstance(group, str):
        raise RegistryError(INVALID_REQUEST, "compatibilityGroup must be text")
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryError(INVALID_REQUEST, "normalize must be true or false")
