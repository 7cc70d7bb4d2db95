"""The page about the audit."""

from typing import Final

from hermes.console.page_request import PagePermission, PageRequest, PageResponse, PageRoute
from hermes.console.sources import Sources
from hermes.console.visibility import visible_audit
from hermes.errors import HermesError


def _audit(sources: Sources, request: PageRequest) -> PageResponse:
    try:
        view = visible_audit(sources.audits.view(), request.viewer)
    except HermesError as error:
        return sources.page(request, "audit", "audit.html", view=None, error=str(error))
    return sources.page(request, "audit", "audit.html", view=view, error="")


ROUTES: Final = (PageRoute("GET", ("audit",), _audit, PagePermission.OWN_CHOICE),)
