"""Forms that change something: what was typed, and what is wrong with it, beside the field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hermes.console.asking import InputError, PageRequest

#: The name of what is wrong with a form as a whole.
WHOLE: Final = ""


class FieldError(InputError):
    """What was typed into a field makes no sense; the text says what would.

    Args:
        name: the field's.
        text: for people.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it is shown.

    Attributes:
        values: what its fields hold, by their names.
        errors: what is wrong, by the field's name; `WHOLE` for what is no field's.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """What a field holds."""
        return self.values.get(name, "")

    def error(self, name: str = WHOLE) -> str:
        """What is wrong with a field; empty if nothing is."""
        return self.errors.get(name, "")

    @classmethod
    def refused(cls, ask: PageRequest, error: Exception) -> "Form":
        """The form that was sent, with what is wrong with it."""
        name = error.name if isinstance(error, FieldError) else WHOLE
        return cls(ask.form, {name: str(error)})


def typed(ask: PageRequest, name: str, most: int = 1000) -> str:
    """What was typed into a field, without the spaces around it.

    Raises:
        FieldError: it is longer than any that makes sense.
    """
    text = ask.form.get(name, "").strip()
    if len(text) > most:
        raise FieldError(name, f"It is longer than {most:,} characters.")
    return text


def typed_number(ask: PageRequest, name: str, least: int, most: int) -> int | None:
    """A whole number that was typed into a field; None for an empty one.

    Raises:
        FieldError: it is none, or out of bounds.
    """
    text = typed(ask, name)
    if not text:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise FieldError(name, f"Expected a whole number from {least:,} to {most:,}.")
    return int(text)
