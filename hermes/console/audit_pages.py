"""The page about the audit."""

from typing import Final

from hermes.console.asking import PageRequest, PageResponse, PageRoute, Permission
from hermes.console.hiding import seen_audit
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _audit(sources: Sources, ask: PageRequest) -> PageResponse:
    try:
        view = seen_audit(sources.audits.view(), ask.viewer)
    except HermesError as error:
        return sources.page(ask, "audit", "audit.html", view=None, error=str(error))
    return sources.page(ask, "audit", "audit.html", view=view, error="")


ROUTES: Final = (PageRoute("GET", ("audit",), _audit, Permission.OWN_CHOICE),)
