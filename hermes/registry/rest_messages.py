"""One call of a registry and its answer, without HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes.registry.documents import write_document
from hermes.registry.errors import RegistryError


@dataclass(frozen=True)
class RestRequest:
    """A call.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: the segments below the registry's address, unquoted.
        query: the parameters, unquoted, with all values of each.
        body: as it came; empty for none.
        target: path and query as they came, below the registry's address, without a slash before:
            what forwards a call sends it on as it is.
        was_forwarded: whether another registry sends it; it isn't sent on again.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    target: str = ""
    was_forwarded: bool = False


@dataclass(frozen=True)
class RestResponse:
    """What comes back.

    Attributes:
        status: of HTTP.
        body: JSON, or empty.
    """

    status: int
    body: bytes


def json_response(value: Any) -> RestResponse:
    """The answer that has a JSON value; None for an empty one (204)."""
    if value is None:
        return RestResponse(204, b"")
    return RestResponse(200, write_document(value).encode())


def error_response(error: RegistryError) -> RestResponse:
    """The answer that says why there is none."""
    body = {"error_code": error.code, "message": error.message}
    return RestResponse(error.status, write_document(body).encode())
