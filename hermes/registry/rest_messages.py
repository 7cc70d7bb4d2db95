"""One call of a registry and its response, without HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes.registry.documents import write_document
from hermes.registry.errors import RegistryError

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

#: Says that a call has come from another registry, which can't be forwarded again.
FORWARDED_HEADER: Final = "X-Hermes-Forwarded"


@dataclass(frozen=True)
class RestRequest:
    """A call.

    Attributes:
        path: the segments below the registry's address, unquoted.
        query: the parameters, unquoted, with all values of each.
        target: path and query as they came, below the registry's address, without a slash before:
            they are forwarded as they are.
        was_forwarded: whether another registry sends it; it isn't forwarded again.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    target: str = ""
    was_forwarded: bool = False


@dataclass(frozen=True)
class RestResponse:
    status: int
    body: bytes


def json_response(value: Any) -> RestResponse:
    """A JSON value; None for an empty response (204)."""
    if value is None:
        return RestResponse(204, b"")
    return RestResponse(200, write_document(value).encode())


def error_response(error: RegistryError) -> RestResponse:
    body = {"error_code": error.code, "message": error.message}
    return RestResponse(error.status, write_document(body).encode())
