"""Renders templates to HTML. Autoescape is on."""

import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from hermes.console import charts, formatting
from hermes.quoting import printable

_PIECE_CHARACTERS: Final = 16 * 1024
_PIECE_SECONDS: Final = 0.25
_READABLE_BYTES: Final = 100


class PageRenderer:
    """Renders the templates beside this file; `everywhere` is passed to each."""

    def __init__(self, **everywhere: Any) -> None:
        environment = Environment(
            loader=PackageLoader("hermes.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update(
            ago=formatting.ago,
            amount=formatting.amount_text,
            bytes=formatting.bytes_text,
            code=_code,
            count=formatting.count_text,
            lasting=formatting.lasting_text,
            part=lambda text: quote(str(text), safe=""),
            printable=printable,
            rate=formatting.rate_text,
            readable=_readable,
            when=formatting.time_text,
        )
        environment.globals.update(
            chart_height=charts.HEIGHT,
            chart_width=charts.WIDTH,
            percent=formatting.percent,
            query=_query,
            **everywhere,
        )
        self._environment = environment

    def page(self, template: str, **values: Any) -> bytes:
        return self._environment.get_template(template).render(values).encode()

    def pieces(self, template: str, **values: Any) -> Iterator[bytes]:
        """A page in pieces, sent while its values, which may be iterators, are still being found.

        An iterator that has found nothing for a while yields something that shows so, and what is
        rendered by then is passed on.
        """
        gathered: list[str] = []
        length, since = 0, time.monotonic()
        for text in self._environment.get_template(template).generate(values):
            gathered.append(text)
            length += len(text)
            if length >= _PIECE_CHARACTERS or time.monotonic() - since >= _PIECE_SECONDS:
                yield "".join(gathered).encode()
                gathered, length, since = [], 0, time.monotonic()
        yield "".join(gathered).encode()


def _readable(data: bytes) -> str:
    text = data[:_READABLE_BYTES].decode(errors="backslashreplace")
    return printable(text, _READABLE_BYTES) + ("…" if len(data) > _READABLE_BYTES else "")


def _code(text: str) -> Markup:
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )


def _query(current: dict[str, Any], **changes: Any) -> str:
    values = {**current, **changes}
    return "?" + urlencode(
        {name: value for name, value in values.items() if value not in ("", None)}
    )
