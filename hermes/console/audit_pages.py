"""The page about the audit."""

from typing import Final

from hermes.console.asking import Answer, Ask, Needs, Route
from hermes.console.hiding import seen_audit
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _audit(sources: Sources, ask: Ask) -> Answer:
    try:
        view = seen_audit(sources.audits.view(), ask.viewer)
    except HermesError as error:
        return sources.page(ask, "audit", "audit.html", view=None, error=str(error))
    return sources.page(ask, "audit", "audit.html", view=view, error="")


ROUTES: Final = (Route("GET", ("audit",), _audit, Needs.OWN_CHOICE),)
