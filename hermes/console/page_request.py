"""HTTP requests and responses of pages as plain values, and the routes between them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from hermes.console.viewer import ANYBODY, Viewer
from hermes.errors import HermesError
from hermes.security import ANONYMOUS

THEME_COOKIE: Final = "hermes_theme"
_MOST_TEXT: Final = 10_000
_MOST_NUMBER: Final = 2**63 - 1


class InputError(HermesError):
    """A parameter that makes no sense; the text says what would."""


class NoSuchPageError(HermesError):
    """There is no such page, or nothing for it to show."""


def whole_number(text: str, least: int = 0, most: int = _MOST_NUMBER) -> int | None:
    """The number that a text is; None if it is none, or out of bounds."""
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_number and least <= int(text) <= most else None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """An HTTP request for a page.

    Attributes:
        path: the parts between the slashes, unquoted.
        query: the parameters in the address; of a repeated one the last.
        here: path and query, to come back to.
        client: the IP address; empty where there is none.
        csrf: the token that a form must carry.
        may_log_out: whether the session has given a password.
        principal: who asks, as far as the listener knows; None if they must log in.
        viewer: who asks, once that is known.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)
    here: str = "/"
    client: str = ""
    csrf: str = ""
    may_log_out: bool = False
    principal: str | None = ANONYMOUS
    viewer: Viewer = ANYBODY

    @property
    def theme(self) -> str:
        """Either `light` or `dark`; empty to follow the system."""
        theme = self.cookies.get(THEME_COOKIE, "")
        return theme if theme in ("light", "dark") else ""

    def text(self, name: str, default: str = "") -> str:
        """A query parameter, stripped. Raises InputError if it is too long."""
        value = self.query.get(name, default).strip()
        if len(value) > _MOST_TEXT:
            raise InputError(f"{name} is longer than {_MOST_TEXT:,} characters")
        return value

    def number(self, name: str, default: int, least: int = 0, most: int = _MOST_NUMBER) -> int:
        """A whole number among the query parameters; InputError if it is none, or out of bounds."""
        text = self.text(name)
        if not text:
            return default
        number = whole_number(text, least, most)
        if number is None:
            raise InputError(f"{name}: expected a whole number from {least:,} to {most:,}")
        return number


@dataclass(frozen=True, slots=True)
class PageResponse:
    """`cookies`: to be set; an empty value deletes one.

    `body`: all of it, or pieces that are made while they are sent, each in a worker thread.
    """

    body: bytes | Iterator[bytes]
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)


class PagePermission(Enum):
    """What a page requires of its viewer; the first `*` of its address names the topic or group.

    OWN_CHOICE    nothing: the page itself leaves out what may not be shown
    CLUSTER       to describe the cluster
    TOPIC         to describe the topic
    MESSAGES      to consume from the topic
    GROUP         to describe the group
    MOVING        to change the group's offsets, or to delete it
    PRODUCING     to describe the topic, and to append messages to it
    SCHEMAS       to see the registry's schemas
    ADMIN         to administer the cluster
    """

    OWN_CHOICE = auto()
    CLUSTER = auto()
    TOPIC = auto()
    MESSAGES = auto()
    GROUP = auto()
    MOVING = auto()
    PRODUCING = auto()
    SCHEMAS = auto()
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class PageRoute:
    """An address and the function that serves it.

    Attributes:
        pattern: the parts of the path; `*` matches any, and is passed to the function.
        serve: called in a worker thread with the `Sources`, the request and the parts for `*`.
        acts: whether the page changes something: hidden unless `console_actions` is set.
    """

    method: str
    pattern: tuple[str, ...]
    serve: Callable[..., PageResponse]
    needs: PagePermission
    acts: bool = False

    def match(self, request: PageRequest) -> tuple[str, ...] | None:
        if request.method != self.method or len(request.path) != len(self.pattern):
            return None
        pairs = list(zip(self.pattern, request.path, strict=True))
        if any(expected not in ("*", part) for expected, part in pairs):
            return None
        return tuple(part for expected, part in pairs if expected == "*")


def redirect(path: str, **more: Any) -> PageResponse:
    """Send the browser to another page of this site; to the overview if it isn't certainly one."""
    is_here = path.startswith("/") and not path.startswith(("//", "/\\"))
    if not is_here or not path.isprintable():
        path = "/"
    return PageResponse(b"", 303, headers={"Location": path}, **more)
