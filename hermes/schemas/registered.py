"""Schemas as a registry has them, and how its interface writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")


class SchemaReference(NamedTuple):
    """A registered schema whose types another one names.

    Attributes:
        name: for Avro the full name of the type.
        subject: where it is registered.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it.

    Attributes:
        schema_id: the number in payloads; it never changes its meaning.
        schema_type: AVRO, JSON or PROTOBUF.
        subject: the subject of the look-up; empty for a look-up by id.
        version: of that subject; 0 for a look-up by id.
    """

    schema_id: int
    text: str
    schema_type: str = "AVRO"
    references: tuple[SchemaReference, ...] = ()
    subject: str = ""
    version: int = 0


def read_registered(given: Mapping[str, Any]) -> RegisteredSchema:
    """Read the description of a schema.

    Raises:
        KeyError: something is missing.
        TypeError: something is of another type.
    """
    return RegisteredSchema(
        schema_id=_of_type(int, given["id"]),
        text=_of_type(str, given["schema"]),
        schema_type=_of_type(str, given.get("schemaType") or "AVRO"),
        references=tuple(
            SchemaReference(
                _of_type(str, each["name"]),
                _of_type(str, each["subject"]),
                _of_type(int, each["version"]),
            )
            for each in given.get("references") or ()
        ),
        subject=_of_type(str, given.get("subject") or ""),
        version=_of_type(int, given.get("version") or 0),
    )


def body_of(text: str, schema_type: str, references: Sequence[SchemaReference]) -> dict[str, Any]:
    """Describe a schema, for a request."""
    body: dict[str, Any] = {"schema": text}
    if schema_type != "AVRO":  # the default, which older registries don't know by name
        body["schemaType"] = schema_type
    if references:
        body["references"] = [each._asdict() for each in references]
    return body


def _of_type(kind: type[_T], value: Any) -> _T:
    if type(value) is not kind:
        raise TypeError(value)
    return value
