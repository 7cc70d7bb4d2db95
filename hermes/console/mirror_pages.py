"""The page about mirrors."""

from typing import Final

from hermes.console.page_request import PagePermission, PageRequest, PageResponse, PageRoute
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _mirrors(sources: Sources, request: PageRequest) -> PageResponse:
    try:
        view = sources.mirrors.view()
    except HermesError as error:
        return sources.page(request, "mirrors", "mirrors.html", view=None, error=str(error))
    return sources.page(request, "mirrors", "mirrors.html", view=view, error="")


ROUTES: Final = (PageRoute("GET", ("mirrors",), _mirrors, PagePermission.CLUSTER),)
