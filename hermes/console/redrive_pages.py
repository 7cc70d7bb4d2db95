"""The pages about dead letters: the topics that have some, and giving them once more."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

from hermes.client.places import parse_time_ms
from hermes.client.retrying.redrive import LetterFilter
from hermes.console.change_log import log_change
from hermes.console.dead_letters import DESTINATIONS, TO_GROUP
from hermes.console.forms import FieldError, Form, parse_places
from hermes.console.page_request import (
    InputError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
    whole_number,
)
from hermes.console.redrive import KINDS, RedriveOrder
from hermes.console.redrive_preview import RedrivePreview, preview
from hermes.console.sources import Sources
from hermes.console.topic_views import TopicView
from hermes.console.visibility import visible_cluster
from hermes.errors import HermesError
from hermes.quoting import quoted, shell_line

#: How topics of dead letters end.
SUFFIX: Final = ".dead"
_MOST_LISTED: Final = 500
_MOST_ATTEMPTS: Final = 10**6
_MOST_RATE: Final = 10**6
_INT64_END: Final = 1 << 63
_FIELDS: Final = ("reason", "origin", "since", "until", "attempts", "to", "rate", "from")
_DEFAULTS: Final = {"attempts": "20", "to": TO_GROUP, "rate": "100"}


def _list(sources: Sources, request: PageRequest) -> PageResponse:
    view = visible_cluster(sources.sampler.view(), request.viewer)
    rows = [row for name, row in sorted(view.topics.items()) if name.endswith(SUFFIX)]
    found = [(row, sources.redrives.of(row.name)) for row in rows[:_MOST_LISTED]]
    return sources.page(request, "dead-letters", "dead_letters.html", found=found, total=len(rows))


# -- choosing -----------------------------------------------------------------------------------


def _redrive(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    values = {each: request.text(each) for each in _FIELDS}
    if "to" not in request.query:
        return _page(sources, request, topic, Form({**values, **_DEFAULTS}))
    try:
        chosen, rate = _filter(values), _rate(values["rate"])
        if values["to"] not in DESTINATIONS:
            raise FieldError("to", "Choose one of these.")
        found = preview(
            sources.cluster,
            sources.topics,
            topic,
            chosen,
            values["to"],
            _starts(values["from"]),
            request.viewer,
        )
    except HermesError as error:
        return _page(sources, request, topic, Form.refused(values, error))
    order = RedriveOrder(name, chosen, values["to"], rate, found.ranges)
    return _page(sources, request, topic, Form(values), found, order)


def _page(
    sources: Sources,
    request: PageRequest,
    topic: TopicView,
    form: Form,
    found: RedrivePreview | None = None,
    order: RedriveOrder | None = None,
) -> PageResponse:
    return sources.form_page(
        request,
        "dead-letters",
        "redrive.html",
        form,
        topic=topic,
        found=found,
        order=order,
        given="" if order is None else json.dumps(asdict(order)),
        command="" if order is None else _command(topic, order),
        last=sources.redrives.of(topic.name),
        kinds=KINDS,
    )


def _filter(values: Mapping[str, str]) -> LetterFilter:
    attempts = whole_number(values["attempts"], most=_MOST_ATTEMPTS)
    if values["attempts"] and attempts is None:
        raise FieldError("attempts", f"Expected a whole number up to {_MOST_ATTEMPTS:,}.")
    return LetterFilter(
        values["reason"],
        values["origin"],
        _time(values, "since"),
        _time(values, "until"),
        attempts,
    )


def _time(values: Mapping[str, str], name: str) -> int | None:
    try:
        return parse_time_ms(values[name]) if values[name] else None
    except ValueError as error:
        raise FieldError(name, str(error)) from error


def _rate(text: str) -> float | None:
    try:
        rate = float(text) if text else None
    except ValueError:
        rate = math.nan
    if rate is not None and not 0 < rate <= _MOST_RATE:
        raise FieldError("rate", f"Expected a number up to {_MOST_RATE:,}, or nothing.")
    return rate


def _starts(text: str) -> dict[str, int]:
    try:
        return parse_places(text)
    except InputError as error:
        raise FieldError("from", "Expected PARTITION:OFFSET,PARTITION:OFFSET...") from error


def _command(topic: TopicView, order: RedriveOrder) -> str:
    """The same on the command line, where one broker has it all."""
    if len(topic.addresses) != 1:
        return ""
    (address,) = topic.addresses.values()
    words = ["hermes", "replay", "-b", str(address), "-t", topic.name, "--dead-letters"]
    words += ["--to-group"] if order.destination == TO_GROUP else []
    chosen = order.chosen
    for option, value in (
        ("--reason", chosen.reason),
        ("--origin", chosen.topic),
        ("--failed-since", chosen.since_ms),
        ("--failed-until", chosen.until_ms),
        ("--max-attempts", chosen.most_attempts),
        ("--rate", order.rate),
    ):
        words += [] if value in ("", None) else [option, str(value)]
    return shell_line(words)


# -- acting -------------------------------------------------------------------------------------


def _act(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    back = f"/topics/{quote(name, safe='')}/redrive"
    if "stop" in request.form:
        last = sources.redrives.of(name)
        if last is not None and last.is_running:
            last.stop()
            log_change(request, f"stopped the redrive of {quoted(name)}")
        return redirect(back)
    topic = sources.topics.topic(name)
    order = _order(name, request.form.get("order", ""))
    for partition in order.ranges:
        if topic.partition(partition) is None:
            raise InputError("A partition of the preview is gone: look again.")
    sources.redrives.start(order, request)
    return redirect(back)


def _order(name: str, text: str) -> RedriveOrder:
    """Read exactly what the preview has shown."""
    try:
        given: Any = json.loads(text)
        chosen = LetterFilter(**given["chosen"])
        ranges = {str(part): (start, end) for part, (start, end) in given["ranges"].items()}
        order = RedriveOrder(name, chosen, given["destination"], given["rate"], ranges)
        if given["topic"] != name or not _is_possible(order):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError("The form can't be understood: go back and look again.") from error
    return order


def _is_possible(order: RedriveOrder) -> bool:
    chosen, rate = order.chosen, order.rate
    numbers = chosen.since_ms, chosen.until_ms, chosen.most_attempts
    is_rate = rate is None or (type(rate) in (int, float) and 0 < rate <= _MOST_RATE)
    return (
        is_rate
        and order.destination in DESTINATIONS
        and all(isinstance(each, str) for each in (chosen.reason, chosen.topic))
        and all(each is None or _is_offset(each) for each in numbers)
        and bool(order.ranges)
        and all(
            _is_offset(start) and _is_offset(end) and start <= end
            for start, end in order.ranges.values()
        )
    )


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < _INT64_END


_PATTERN: Final = ("topics", "*", "redrive")

ROUTES: Final = (
    PageRoute("GET", ("dead-letters",), _list, PagePermission.OWN_CHOICE),
    PageRoute("GET", _PATTERN, _redrive, PagePermission.MESSAGES, acts=True),
    PageRoute("POST", _PATTERN, _act, PagePermission.MESSAGES, acts=True),
)
