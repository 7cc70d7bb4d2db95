"""Forms that change something: what was typed, and errors beside the fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hermes.console.page_request import InputError, PageRequest, whole_number

#: The name of what is wrong with a form as a whole.
WHOLE: Final = ""


class FieldError(InputError):
    """An invalid field; the text says what would be valid."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True, slots=True)
class Form:
    """A form as shown: values and errors by field; `WHOLE` for an error about no field."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def error(self, name: str = WHOLE) -> str:
        return self.errors.get(name, "")

    @classmethod
    def refused(cls, values: Mapping[str, str], error: Exception) -> "Form":
        name = error.name if isinstance(error, FieldError) else WHOLE
        return cls(values, {name: str(error)})


def typed(request: PageRequest, name: str, most: int = 1000) -> str:
    """A field, stripped. Raises FieldError if it is too long."""
    text = request.form.get(name, "").strip()
    if len(text) > most:
        raise FieldError(name, f"It is longer than {most:,} characters.")
    return text


def typed_number(request: PageRequest, name: str, least: int, most: int) -> int | None:
    """A field's whole number; None if it is empty, FieldError if it is none or out of bounds."""
    text = typed(request, name)
    return field_number(name, text, least, most) if text else None


def field_number(name: str, text: str, least: int, most: int) -> int:
    number = whole_number(text, least, most)
    if number is None:
        raise FieldError(name, f"Expected a whole number from {least:,} to {most:,}.")
    return number


def parse_places(text: str) -> dict[str, int]:
    """Parse `0-0:123,0-1:456`. Raises InputError for anything else."""
    places: dict[str, int] = {}
    for each in text.split(",") if text else ():
        name, _, digits = each.partition(":")
        offset = whole_number(digits)
        if offset is None:
            raise InputError("at: expected BROKER-PARTITION:OFFSET,...")
        places[name] = offset
    return places


def format_places(places: dict[str, int]) -> str:
    return ",".join(f"{name}:{offset}" for name, offset in places.items())
