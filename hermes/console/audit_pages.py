"""The page about the audit."""

from typing import Final

from hermes.console.asking import Answer, Ask, Route
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _audit(sources: Sources, ask: Ask) -> Answer:
    try:
        view = sources.audits.view()
    except HermesError as error:
        return sources.page(ask, "audit", "audit.html", view=None, error=str(error))
    return sources.page(ask, "audit", "audit.html", view=view, error="")


ROUTES: Final = (Route("GET", ("audit",), _audit),)
