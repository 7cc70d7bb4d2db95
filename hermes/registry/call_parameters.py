"""Reads a call's path, query and body, with clear errors."""

from typing import Any

from hermes.quoting import quoted
from hermes.registry.documents import read_document
from hermes.registry.drafts import Draft
from hermes.registry.entities import AVRO, Reference, document_text
from hermes.registry.errors import INVALID_REQUEST, RegistryError, invalid_schema
from hermes.registry.limits import MAX_METADATA_LENGTH
from hermes.registry.lookups import check_subject
from hermes.registry.rest_messages import RestRequest

_LAST = 2**31 - 1


class CallParameters:
    """The parameters of one call; `parts` are the segments that its route leaves open."""

    def __init__(self, request: RestRequest, parts: tuple[str, ...]) -> None:
        self.parts = parts
        self._query = request.query
        self._body = request.body

    @property
    def subject(self) -> str:
        """The first open segment; RegistryError 42208 if it is no subject's name."""
        check_subject(self.parts[0])
        return self.parts[0]

    @property
    def subject_or_all(self) -> str | None:
        """The subject; None if the path names none, and all are meant."""
        return self.subject if self.parts else None

    def text(self, *names: str) -> str | None:
        """The parameter that has one of these names; None if none is given."""
        for name in names:
            if name in self._query:
                return self._query[name][-1]
        return None

    def texts(self, name: str) -> list[str]:
        return self._query.get(name, [])

    def flag(self, *names: str) -> bool:
        """Whether a parameter is true, or false if it isn't given; RegistryError 422 if neither."""
        text = (self.text(*names) or "false").lower()
        if text not in ("true", "false"):
            raise _invalid(f"{names[0]} must be true or false, not {quoted(text, 40)}")
        return text == "true"

    def page(self, found: list[Any], usual: int = -1) -> list[Any]:
        """The part of a list that `offset` and `limit` want; a limit below zero is none.

        `usual` is the limit if the call gives none.
        """
        offset, limit = self._number("offset", 0), self._number("limit", usual)
        end = None if limit < 0 else max(offset, 0) + limit
        return found[max(offset, 0) : end]

    def number(self) -> int:
        """The first open segment as an id; RegistryError 422 if it is none."""
        text = self.parts[0]
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise _invalid(f"an id is a number, not {quoted(text, 40)}")
        return int(text)

    def body(self) -> dict[str, Any]:
        """The body, a JSON object; RegistryError 422 if it is none."""
        try:
            found = read_document(self._body)
        except ValueError as error:
            raise _invalid(f"the body can't be read: {error}") from None
        if not isinstance(found, dict):
            raise _invalid("the body must be a JSON object")
        return found

    def _number(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            raise _invalid(f"{name} must be a number, not {quoted(text, 40)}")
        return int(text)


def read_body_draft(body: dict[str, Any]) -> Draft:
    """The schema in a body; RegistryError 42201 if something is missing or of the wrong type."""
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise invalid_schema('the body needs a "schema": the text of a schema')
    kind = body.get("schemaType")
    if kind is not None and not isinstance(kind, str):
        raise invalid_schema('"schemaType" must be text')
    return Draft(
        (kind or AVRO).upper(),
        text,
        _references(body.get("references")),
        _document(body, "metadata"),
        _document(body, "ruleSet"),
    )


def optional_number(body: dict[str, Any], name: str) -> int | None:
    """An id or a version in a body; None for none, or some clients' -1. Else RegistryError 422."""
    value = body.get(name)
    if value is None or value == -1 or (name == "version" and value == 0):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LAST:
        raise _invalid(f'"{name}" must be a number from 1 to {_LAST}, not {quoted(value, 40)}')
    return value


def _references(given: Any) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise invalid_schema('"references" must be a list')
    return tuple(map(_reference, given))


def _reference(given: Any) -> Reference:
    if not isinstance(given, dict):
        raise invalid_schema("a reference must be an object")
    name, subject, version = (given.get(key) for key in ("name", "subject", "version"))
    if not isinstance(name, str) or not isinstance(subject, str):
        raise invalid_schema('a reference needs a "name" and a "subject"')
    if isinstance(version, bool) or not isinstance(version, int) or version not in range(-1, _LAST):
        raise invalid_schema('a reference needs a "version": a number, -1 for the latest')
    return Reference(name, subject, version)


def _document(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid_schema(f'"{name}" must be an object')
    if name == "metadata" and value is not None:
        properties = value.get("properties")
        if properties is not None and not isinstance(properties, dict):
            raise invalid_schema('the "properties" of "metadata" must be an object')
    text = document_text(value)
    if name == "metadata" and len(text) > MAX_METADATA_LENGTH:
        raise invalid_schema(f'"metadata" has more than {MAX_METADATA_LENGTH} characters')
    return text


def _invalid(reason: str) -> RegistryError:
    return RegistryError(INVALID_REQUEST, reason)
