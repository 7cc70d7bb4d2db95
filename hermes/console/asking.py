"""A request for a page and its answer as plain values: what pages are written and tested with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from hermes.console.viewing import ANYBODY, Viewer
from hermes.errors import HermesError
from hermes.security import ANONYMOUS

THEME_COOKIE: Final = "hermes_theme"
_MOST_TEXT: Final = 10_000
_MOST_NUMBER: Final = 2**63 - 1


class InputError(HermesError):
    """What was asked for makes no sense; the text says what would."""


class NoSuchPageError(HermesError):
    """There is no such page, or nothing that it would be about."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page.

    Attributes:
        method: GET or POST.
        path: the parts between the slashes, unquoted.
        query: the parameters in the address; of those given twice the last.
        form: the fields of a form that was sent.
        cookies: the cookies.
        here: the address within the site, with its query: where to come back to.
        client: the IP address that it comes from; empty where there is none.
        csrf: what a form of this session must carry to change anything.
        may_log_out: whether this session has given a password.
        principal: who asks, as far as the listener knows; None if they are to log in.
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
        """The colours that were chosen: light or dark; empty to follow the system."""
        theme = self.cookies.get(THEME_COOKIE, "")
        return theme if theme in ("light", "dark") else ""

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the address, without the spaces around it.

        Raises:
            InputError: it is longer than any that makes sense.
        """
        value = self.query.get(name, default).strip()
        if len(value) > _MOST_TEXT:
            raise InputError(f"{name} is longer than {_MOST_TEXT:,} characters")
        return value

    def number(self, name: str, default: int, least: int = 0, most: int = _MOST_NUMBER) -> int:
        """A whole number among the parameters.

        Raises:
            InputError: it is none, or out of bounds.
        """
        text = self.text(name)
        if not text:
            return default
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        if not is_number or not least <= int(text) <= most:
            raise InputError(f"{name}: expected a whole number from {least:,} to {most:,}")
        return int(text)


@dataclass(frozen=True, slots=True)
class PageResponse:
    """What is sent back.

    Attributes:
        body: all of it, or pieces that are made while they are sent, each in a worker thread.
        status: of HTTP.
        content_type: of HTTP.
        headers: further ones.
        cookies: to be set: name, and value; an empty value deletes it.
    """

    body: bytes | Iterator[bytes]
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)


class Permission(Enum):
    """What a viewer must be allowed to be given a page; the first `*` of its address is the name.

    OWN_CHOICE    nothing: the page takes out itself what may not be shown, or shows nothing
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
    """An address and the function that answers it.

    Attributes:
        method: GET or POST.
        pattern: the parts of the path; `*` stands for any, which is passed to the function.
        serve: called in a worker thread with the console, the `PageRequest` and the parts for `*`;
            a HermesError that it raises becomes a page that says it.
        needs: who may ask.
        acts: whether the page is there for changing something: nobody is given it unless
            `console_actions` is set.
    """

    method: str
    pattern: tuple[str, ...]
    serve: Callable[..., PageResponse]
    needs: Permission
    acts: bool = False

    def match(self, ask: PageRequest) -> tuple[str, ...] | None:
        """The parts that stand for `*`; None if this isn't the route."""
        if ask.method != self.method or len(ask.path) != len(self.pattern):
            return None
        pairs = list(zip(self.pattern, ask.path, strict=True))
        if any(expected not in ("*", part) for expected, part in pairs):
            return None
        return tuple(part for expected, part in pairs if expected == "*")


def redirect(path: str, **more: Any) -> PageResponse:
    """Send the browser to another page of this site.

    Args:
        path: as `PageRequest.here`; anything that could lead to another site leads to the overview.
        more: further attributes of the answer.
    """
    is_here = path.startswith("/") and not path.startswith(("//", "/\\"))
    if not is_here or not path.isprintable():
        path = "/"
    return PageResponse(b"", 303, headers={"Location": path}, **more)
