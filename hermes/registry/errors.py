"""Why a registry refuses a call: a code, its HTTP status, and one sentence.

The codes are Confluent's, since clients look at them; their first three digits are the HTTP status.
"""

from typing import Final

from hermes.errors import HermesError
from hermes.quoting import quoted

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_CONFIG_OF_SUBJECT: Final = 40408
NO_MODE_OF_SUBJECT: Final = 40409
ASSOCIATION_NOT_FOUND: Final = 40450
INCOMPATIBLE: Final = 409
ASSOCIATION_EXISTS: Final = 40950
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
INVALID_SUBJECT: Final = 42208
INVALID_REQUEST: Final = 422
FAILED: Final = 50001
UNAVAILABLE: Final = 50003


class RegistryError(HermesError):
    """A call that is refused or can't be done now; nothing has been changed by it.

    `message`: one sentence for the caller; it may quote them.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code // 100 if self.code > 999 else self.code


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject {quoted(subject)} not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {reason}")


def unavailable(reason: str) -> RegistryError:
    """Nothing can be changed at the moment; `reason` says what to do about it."""
    return RegistryError(UNAVAILABLE, reason)
