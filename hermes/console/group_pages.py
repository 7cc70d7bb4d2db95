"""The pages about consumer groups, and the one thing that may be changed here: their offsets."""

import json
from collections.abc import Sequence
from typing import Final

from hermes.client.places import Place, parse_reset_position
from hermes.console.asking import Answer, Ask, InputError, Needs, Route, redirect
from hermes.console.deeds import note_deed
from hermes.console.group_views import KIND_WORDS, OWN, group_path
from hermes.console.groups import GroupReader, group_list
from hermes.console.hiding import seen_group
from hermes.console.resets import OffsetChange
from hermes.console.sources import Sources
from hermes.errors import HermesError, UnknownTopicError
from hermes.quoting import quoted

_NAMED: Final = ("earliest", "latest")


def _groups(sources: Sources, ask: Ask) -> Answer:
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


def _group(sources: Sources, ask: Ask, name: str) -> Answer:
    readers = _of_name(sources, ask.text("kind"), name)
    if len(readers) > 1:
        rows = [reader.row(name) for reader in readers]
        return sources.page(ask, "groups", "group_kinds.html", name=name, rows=rows)
    view = seen_group(readers[0].group(name), ask.viewer)
    return sources.page(
        ask, "groups", "group.html", view=view, may_move=ask.viewer.moves_group(name)
    )


def _of_name(sources: Sources, word: str, name: str) -> Sequence[GroupReader]:
    """What reads the group of a name: two readers where both kinds have one and none is chosen."""
    chosen = [each for each in sources.all_groups if KIND_WORDS[each.kind] == word]
    having = [each for each in sources.all_groups if name in each.names()]
    return chosen or having or sources.all_groups[:1]  # whose page says that there is none


def _preview(sources: Sources, ask: Ask, name: str) -> Answer:
    """What a reset would do. It changes nothing, and so it is a GET."""
    topic, to, value = ask.text("topic"), ask.text("to"), ask.text("value")
    changes = sources.resets.preview(name, topic, _place(to, value), ask.viewer.sees_topic)
    given = [[each.topic, each.partition, each.before, each.after] for each in changes]
    return sources.page(
        ask,
        "groups",
        "reset.html",
        name=name,
        changes=changes,
        given=json.dumps(given),
        to=f"{to} {value}".strip(),
    )


def _reset(sources: Sources, ask: Ask, name: str) -> Answer:
    """Store exactly what the preview has shown, or nothing."""
    try:
        given = json.loads(ask.form.get("changes", ""))
        changes = [
            OffsetChange(topic, part, before, after, None) for topic, part, before, after in given
        ]
        if not all(type(each.after) is int and each.after >= 0 for each in changes):
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError("The form can't be understood: go back to the group.") from error
    for each in changes:
        if not ask.viewer.sees_topic(each.topic):
            raise UnknownTopicError(f"topic {each.topic!r}")
    sources.resets.reset(name, changes)
    moved = ", ".join(
        f"{each.topic} {each.partition} from {each.before} to {each.after}" for each in changes
    )
    note_deed(ask, f"moved group {quoted(name)}: {moved}")
    return redirect(f"{group_path(name, OWN)}&done=moved")


def _place(to: str, value: str) -> Place:
    try:
        if to in _NAMED:
            return parse_reset_position(to)
        if to == "time":
            return parse_reset_position(f"@{value}")
        if to in ("offset", "shift"):
            return parse_reset_position(value)
    except ValueError as error:
        raise InputError(str(error)) from error
    raise InputError("to: expected earliest, latest, time, offset or shift")


ROUTES: Final = (
    Route("GET", ("groups",), _groups, Needs.OWN_CHOICE),
    Route("GET", ("groups", "*"), _group, Needs.GROUP),
    Route("GET", ("groups", "*", "reset"), _preview, Needs.MOVING, acts=True),
    Route("POST", ("groups", "*", "reset"), _reset, Needs.MOVING, acts=True),
)
