"""The pages that reset and delete consumer groups."""

import json
from typing import Final
from urllib.parse import quote, quote_plus

from hermes.client.places import PartitionPlace, parse_reset_position
from hermes.console.change_log import failures_logged, log_change
from hermes.console.forms import FieldError, Form
from hermes.console.group_changes import OffsetChange
from hermes.console.group_pages import readers_of
from hermes.console.group_reader import GroupReader
from hermes.console.group_views import KIND_WORDS, group_path
from hermes.console.page_request import (
    InputError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
)
from hermes.console.sources import Sources
from hermes.errors import GroupActiveError, HermesError, UnknownTopicError
from hermes.quoting import printable, quoted

_NAMED: Final = ("earliest", "latest")
_VALUE: Final = "value"
_CONFIRM: Final = "confirm"

#: A body has 64 KiB at most, of which a form needs some for itself.
_MOST_CHANGES_BYTES: Final = 60 * 1024


# -- reset --------------------------------------------------------------------------------------


def _preview(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    """What a reset would do: changes nothing, so it is a GET."""
    reader = _reader(sources, request, name)
    topic, to, value = request.text("topic"), request.text("to"), request.text(_VALUE)
    changes: list[OffsetChange] = []
    form, given = Form(request.query), ""
    try:
        place = _place(to, value)
        changer = sources.group_changes[reader.kind]
        found = changer.preview(name, topic, place, request.viewer.sees_topic)
        given = json.dumps(
            [[each.topic, each.partition, each.before, each.after] for each in found]
        )
        if len(quote_plus(given)) > _MOST_CHANGES_BYTES:
            text = f"{len(found)} offsets are more than a page can change: choose one topic, or use"
            raise InputError(f"{text} hermes groups reset.")
        changes = found
    except GroupActiveError:
        raise
    except HermesError as error:
        form = Form.refused(request.query, error)
    return sources.form_page(
        request,
        "groups",
        "reset.html",
        form,
        name=name,
        kind=reader.kind,
        path=group_path(name, reader.kind),
        action=_action(name, reader, "reset"),
        topics=_topics(reader, request, name),
        changes=changes,
        given=given,
        to=f"{to} {value}".strip(),
    )


def _topics(reader: GroupReader, request: PageRequest, name: str) -> list[str]:
    return [each for each in reader.group(name).topics if request.viewer.sees_topic(each)]


def _reset(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    """Store exactly what the preview has shown, or nothing."""
    changes = _shown_changes(request.form.get("changes", ""))
    reader = _reader(sources, request, name)
    for each in changes:
        if not request.viewer.sees_topic(each.topic):
            raise UnknownTopicError(f"topic {each.topic!r}")
    moved = ", ".join(
        f"{each.topic} {each.partition} from {each.before} to {each.after}" for each in changes
    )
    with failures_logged(request, f"move group {quoted(name)}: {moved}"):
        sources.group_changes[reader.kind].reset(name, changes)
    log_change(request, f"moved group {quoted(name)}: {moved}")
    return redirect(f"{group_path(name, reader.kind)}&done=moved")


def _shown_changes(text: str) -> list[OffsetChange]:
    try:
        given = json.loads(text)
        changes = [
            OffsetChange(topic, part, before, after, None) for topic, part, before, after in given
        ]
        if not changes or not all(map(_is_possible, changes)):
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError("The form can't be understood: go back to the group.") from error
    return changes


def _is_possible(change: OffsetChange) -> bool:
    names = (change.topic, change.partition)
    numbers = (change.after, change.after if change.before is None else change.before)
    return all(type(each) is str for each in names) and all(
        type(each) is int and 0 <= each < 2**63 for each in numbers
    )


def _place(to: str, value: str) -> PartitionPlace:
    if to in _NAMED:
        return parse_reset_position(to)
    if to not in ("time", "offset", "shift"):
        raise FieldError("to", "Expected earliest, latest, time, offset or shift.")
    if to == "shift" and value[:1] not in ("+", "-"):
        raise FieldError(_VALUE, "Expected how far, with its direction: +100 or -100.")
    if to == "offset" and not (value.isascii() and value.isdigit()):
        raise FieldError(_VALUE, "Expected an offset, a whole number.")
    try:
        return parse_reset_position(f"@{value}" if to == "time" else value)
    except ValueError as error:
        raise FieldError(_VALUE, str(error)) from error


# -- delete -------------------------------------------------------------------------------------


def _confirm(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    return _confirm_page(sources, request, name, _reader(sources, request, name), Form())


def _confirm_page(
    sources: Sources, request: PageRequest, name: str, reader: GroupReader, form: Form
) -> PageResponse:
    view = reader.group(name)
    return sources.form_page(
        request,
        "groups",
        "group_delete.html",
        form,
        name=name,
        path=group_path(name, reader.kind),
        action=_action(name, reader, "delete"),
        members=len(view.members),
        partitions=sum(row.offset is not None for row in view.rows),
    )


def _delete(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    reader = _reader(sources, request, name)
    try:
        # What can't be typed, such as a line's end in a name, is taken as it is shown.
        if request.form.get(_CONFIRM, "") not in (name, printable(name)):
            raise FieldError(_CONFIRM, "This is not the group’s name.")  # noqa: RUF001
        with failures_logged(request, f"delete group {quoted(name)}"):
            sources.group_changes[reader.kind].delete(name)
    except (FieldError, GroupActiveError) as error:
        return _confirm_page(sources, request, name, reader, Form.refused(request.form, error))
    log_change(request, f"deleted group {quoted(name)} of {KIND_WORDS[reader.kind]}’s clients")  # noqa: RUF001
    return redirect("/groups?done=group-deleted")


# -- both ---------------------------------------------------------------------------------------


def _reader(sources: Sources, request: PageRequest, name: str) -> GroupReader:
    """The reader of a group; InputError for two of its name, unless the address says which."""
    readers = readers_of(sources, request.text("kind"), name)
    if len(readers) > 1:
        raise InputError("Two groups have this name: go to the page of the one that you mean.")
    return readers[0]


def _action(name: str, reader: GroupReader, what: str) -> str:
    return f"/groups/{quote(name, safe='')}/{what}?kind={KIND_WORDS[reader.kind]}"


ROUTES: Final = (
    PageRoute("GET", ("groups", "*", "reset"), _preview, PagePermission.MOVING, acts=True),
    PageRoute("POST", ("groups", "*", "reset"), _reset, PagePermission.MOVING, acts=True),
    PageRoute("GET", ("groups", "*", "delete"), _confirm, PagePermission.MOVING, acts=True),
    PageRoute("POST", ("groups", "*", "delete"), _delete, PagePermission.MOVING, acts=True),
)
