"""The pages about consumer groups: the list, and one group."""

from collections.abc import Sequence
from typing import Final

from hermes.console.forms import Form
from hermes.console.group_reader import GroupReader, group_list
from hermes.console.group_views import KIND_WORDS
from hermes.console.page_request import (
    InputError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
)
from hermes.console.sources import Sources
from hermes.console.visibility import visible_group
from hermes.errors import HermesError


def _groups(sources: Sources, request: PageRequest) -> PageResponse:
    try:
        groups = group_list(
            sources.all_groups,
            sources.cache,
            request.viewer,
            request.text("q"),
            request.text("sort"),
            request.text("order"),
            request.number("page", 1),
        )
    except InputError:
        raise
    except HermesError as error:
        return sources.page(request, "groups", "groups.html", list=None, error=str(error))
    return sources.page(request, "groups", "groups.html", list=groups, error="")


def _group(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    readers = readers_of(sources, request.text("kind"), name)
    if len(readers) > 1:
        rows = [reader.row(name) for reader in readers]
        return sources.page(request, "groups", "group_kinds.html", name=name, rows=rows)
    view = visible_group(readers[0].group(name), request.viewer)
    return sources.page(
        request,
        "groups",
        "group.html",
        view=view,
        form=Form(),
        may_move=request.viewer.moves_group(name),
    )


def readers_of(sources: Sources, word: str, name: str) -> Sequence[GroupReader]:
    """The readers of a group: both where both kinds have one of this name and none is chosen."""
    chosen = [each for each in sources.all_groups if KIND_WORDS[each.kind] == word]
    having = [each for each in sources.all_groups if name in each.names()]
    return chosen or having or sources.all_groups[:1]  # whose page says that there is none


ROUTES: Final = (
    PageRoute("GET", ("groups",), _groups, PagePermission.OWN_CHOICE),
    PageRoute("GET", ("groups", "*"), _group, PagePermission.GROUP),
)
