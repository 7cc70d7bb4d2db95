"""The pages about consumer groups: the list, and one group."""

from collections.abc import Sequence
from typing import Final

from hermes.console.asking import InputError, PageRequest, PageResponse, PageRoute, Permission
from hermes.console.forms import Form
from hermes.console.group_views import KIND_WORDS
from hermes.console.groups import GroupReader, group_list
from hermes.console.hiding import seen_group
from hermes.console.sources import Sources
from hermes.errors import HermesError


def _groups(sources: Sources, ask: PageRequest) -> PageResponse:
    try:
        groups = group_list(
            sources.all_groups,
            sources.recent,
            ask.viewer,
            ask.text("q"),
            ask.text("sort"),
            ask.text("order"),
            ask.number("page", 1),
        )
    except InputError:
        raise
    except HermesError as error:
        return sources.page(ask, "groups", "groups.html", list=None, error=str(error))
    return sources.page(ask, "groups", "groups.html", list=groups, error="")


def _group(sources: Sources, ask: PageRequest, name: str) -> PageResponse:
    readers = readers_of(sources, ask.text("kind"), name)
    if len(readers) > 1:
        rows = [reader.row(name) for reader in readers]
        return sources.page(ask, "groups", "group_kinds.html", name=name, rows=rows)
    view = seen_group(readers[0].group(name), ask.viewer)
    return sources.page(
        ask, "groups", "group.html", view=view, form=Form(), may_move=ask.viewer.moves_group(name)
    )


def readers_of(sources: Sources, word: str, name: str) -> Sequence[GroupReader]:
    """The readers of a group: both where both kinds have one of this name and none is chosen."""
    chosen = [each for each in sources.all_groups if KIND_WORDS[each.kind] == word]
    having = [each for each in sources.all_groups if name in each.names()]
    return chosen or having or sources.all_groups[:1]  # whose page says that there is none


ROUTES: Final = (
    PageRoute("GET", ("groups",), _groups, Permission.OWN_CHOICE),
    PageRoute("GET", ("groups", "*"), _group, Permission.GROUP),
)
