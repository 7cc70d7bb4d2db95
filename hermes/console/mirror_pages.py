"""The page about mirrors."""

from typing import Final

from hermes.console.asking import PageRequest, PageResponse, PageRoute, Permission
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _mirrors(sources: Sources, ask: PageRequest) -> PageResponse:
    try:
        view = sources.mirrors.view()
    except HermesError as error:
        return sources.page(ask, "mirrors", "mirrors.html", view=None, error=str(error))
    return sources.page(ask, "mirrors", "mirrors.html", view=view, error="")


ROUTES: Final = (PageRoute("GET", ("mirrors",), _mirrors, Permission.CLUSTER),)
