"""The pages about the whole cluster: the overview and the brokers."""

from typing import Final
from urllib.parse import quote

from hermes.console.asking import THEME_COOKIE, Answer, Ask, Route, redirect
from hermes.console.overview import Concern, overview
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _overview(sources: Sources, ask: Ask) -> Answer:
    cluster = sources.sampler.view()
    groups, error = None, sources.cluster.coordination_error()
    concerns: list[Concern] = []
    if not error:
        try:
            groups = len(sources.groups.names())
            for name, text in sources.groups.concerns():
                link = f"/groups/{quote(name, safe='')}"
                concerns.append(Concern("warn", f"Group {name}: {text}", link))
        except HermesError as failure:
            error = str(failure)
    view = overview(cluster, groups, error, concerns)
    return sources.page(ask, "overview", "overview.html", view=view)


def _brokers(sources: Sources, ask: Ask) -> Answer:
    return sources.page(ask, "brokers", "brokers.html", view=sources.sampler.view())


def _theme(_: Sources, ask: Ask) -> Answer:
    """Remember the colours; nothing but a taste, so a link may do it."""
    wanted = ask.text("to")
    cookie = wanted if wanted in ("light", "dark") else ""
    return redirect(ask.text("back", "/"), cookies={THEME_COOKIE: cookie})


ROUTES: Final = (
    Route("GET", (), _overview),
    Route("GET", ("brokers",), _brokers),
    Route("GET", ("theme",), _theme),
)
