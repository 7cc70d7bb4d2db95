"""The page about mirrors."""

from typing import Final

from hermes.console.asking import Answer, Ask, Needs, Route
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _mirrors(sources: Sources, ask: Ask) -> Answer:
    try:
        view = sources.mirrors.view()
    except HermesError as error:
        return sources.page(ask, "mirrors", "mirrors.html", view=None, error=str(error))
    return sources.page(ask, "mirrors", "mirrors.html", view=view, error="")


ROUTES: Final = (Route("GET", ("mirrors",), _mirrors, Needs.CLUSTER),)
