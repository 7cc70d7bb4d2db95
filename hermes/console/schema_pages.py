"""The pages about a registry's schemas: the subjects, and one with its versions."""

import difflib
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from hermes.console.list_page import ListPage
from hermes.console.page_request import (
    NoSuchPageError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
)
from hermes.console.payload_display import json_text, lines_text
from hermes.console.registry_records import RegistryRecords
from hermes.console.sources import Sources
from hermes.errors import UnknownSchemaError
from hermes.quoting import printable
from hermes.schemas.registered import RegisteredSchema

_MOST_CHARACTERS: Final = 200_000
# Of each text: comparing takes the square of it at worst.
_MOST_LINES: Final = 2_000
_MOST_VERSIONS: Final = 500


def pretty(schema: RegisteredSchema) -> str:
    """A schema's text for people: JSON indented, very long ones cut."""
    text = schema.text
    if schema.schema_type != "PROTOBUF" and len(text) <= _MOST_CHARACTERS:
        with suppress(ValueError, RecursionError):
            text = json_text(json.loads(text), _MOST_CHARACTERS, indent=2)
    return lines_text(text[:_MOST_CHARACTERS])


def difference(before: str, after: str) -> list[tuple[str, str]] | None:
    """A unified diff: each line with its sign; None if there are too many."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return None
    return list(_signed(difflib.unified_diff(old, new, lineterm="", n=3)))


def _signed(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        if number >= 2:  # the first two name files
            yield (line[:1], line[1:]) if line[:1] in "+- " else ("@", line)


def _offered(versions: list[int], *chosen: int) -> list[int]:
    """The versions to choose from, newest first; also those shown that no longer exist."""
    return sorted({*versions[-_MOST_VERSIONS:], *chosen} - {0}, reverse=True)


def _records(sources: Sources) -> RegistryRecords:
    if sources.records is None:
        raise NoSuchPageError(
            "No schema registry is known here: name one by hermes console --registry URL."
        )
    return sources.records


def _subjects(sources: Sources, request: PageRequest) -> PageResponse:
    records = _records(sources)
    subjects = sources.cache.get("subjects", records.subjects)
    search = request.text("q")
    found = sorted(each for each in subjects if search.lower() in each.lower())
    page = ListPage.cut(found, len(subjects), request.number("page", 1), search)
    return sources.page(request, "schemas", "schemas.html", list=page, registry=records.name)


def _subject(sources: Sources, request: PageRequest, subject: str) -> PageResponse:
    records = _records(sources)
    try:
        versions = records.versions(subject)
        number = request.number("version", 0) or versions[-1]
        against = request.number("against", 0)
        shown = records.version(subject, number)
        other = records.version(subject, against) if against else None
    except (UnknownSchemaError, IndexError):
        text = f"There is no such schema of subject {printable(subject, 200)}."
        raise NoSuchPageError(text) from None
    text = pretty(shown)
    return sources.page(
        request,
        "schemas",
        "schema.html",
        subject=subject,
        count=len(versions),
        offered=_offered(versions, number, against),
        is_deleted=number not in versions,
        schema=shown,
        text=text,
        is_cut=len(shown.text) > _MOST_CHARACTERS or len(text) >= _MOST_CHARACTERS,
        compatibility=records.compatibility(subject),
        other=other,
        lines=None if other is None else difference(pretty(other), text),
    )


ROUTES: Final = (
    PageRoute("GET", ("schemas",), _subjects, PagePermission.SCHEMAS),
    PageRoute("GET", ("schemas", "*"), _subject, PagePermission.SCHEMAS),
)
