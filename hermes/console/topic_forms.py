"""The pages that change topics: create one; alter, grow or delete it."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from hermes.config.kinds import FORMAT_0_7, FORMAT_KAFKA, MAX_PARTITIONS
from hermes.config.topic import MOST_COPIES
from hermes.console.change_log import failures_logged, log_change
from hermes.console.forms import WHOLE, FieldError, Form, typed, typed_number
from hermes.console.page_request import (
    InputError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
)
from hermes.console.sources import Sources
from hermes.console.topic_changes import (
    COPIES,
    FORM_SETTINGS,
    FORMAT,
    PARTITIONS,
    SettingRow,
    TopicHost,
    format_of,
    is_shared,
    partition_count,
)
from hermes.console.topic_views import TopicView
from hermes.errors import (
    HermesError,
    InvalidTopicBrokerError,
    InvalidTopicError,
    SettingRefusedError,
    TopicExistsError,
)
from hermes.quoting import printable, quoted

_NAME: Final = "name"
_CONFIRM: Final = "confirm"
_MOST_SETTING: Final = 4096


# -- create -------------------------------------------------------------------------------------


def _new(sources: Sources, request: PageRequest) -> PageResponse:
    hosts = sources.topic_changes.hosts()
    wanted = FORMAT_KAFKA if any(each.serves_kafka for each in hosts) else FORMAT_0_7
    form = Form({FORMAT: wanted, **{_home_field(each): "on" for each in hosts}})
    return _new_page(sources, request, hosts, form)


def _new_page(
    sources: Sources, request: PageRequest, hosts: Sequence[TopicHost], form: Form
) -> PageResponse:
    changes, may_see = sources.topic_changes, request.viewer.administers
    return sources.form_page(
        request,
        "topics",
        "topic_new.html",
        form,
        hosts=hosts,
        host_field=_home_field,
        rows=changes.rows(with_defaults=may_see),
        most_partitions=MAX_PARTITIONS,
        most_copies=MOST_COPIES,
        hints=_HINTS,
    )


def _create(sources: Sources, request: PageRequest) -> PageResponse:
    hosts = sources.topic_changes.hosts()
    try:
        name, settings, chosen = _wanted_topic(request, hosts)
        if not request.viewer.creates_topic(name):
            raise FieldError(_NAME, str(request.viewer.refusal(f"create topic {quoted(name)}")))
        with failures_logged(request, f"create topic {quoted(name)}"):
            sources.topic_changes.create(name, settings, chosen)
    except HermesError as error:
        return _new_page(sources, request, hosts, Form.refused(request.form, _placed(error)))
    log_change(request, f"created topic {quoted(name)} with {_shown(settings)}")
    return redirect(f"{_path(name)}?done=created")


def _wanted_topic(
    request: PageRequest, hosts: Sequence[TopicHost]
) -> tuple[str, dict[str, str], Sequence[TopicHost]]:
    name = typed(request, _NAME)
    if not name:
        raise FieldError(_NAME, "A topic needs a name.")
    form = typed(request, FORMAT)
    if form not in (FORMAT_0_7, FORMAT_KAFKA):
        raise FieldError(FORMAT, "Choose one of the formats.")
    settings = {FORMAT: f"'{form}'"} if form == FORMAT_0_7 else {FORMAT: form}
    count = typed_number(request, PARTITIONS, 1, MAX_PARTITIONS)
    if count is not None:
        settings[PARTITIONS] = str(count)
    copies = typed_number(request, COPIES, 1, MOST_COPIES)
    if copies is not None and (copies > 1 or form == FORMAT_KAFKA):
        settings[COPIES] = str(copies)
    for key in FORM_SETTINGS:
        value = typed(request, key, _MOST_SETTING)
        if value:
            settings[key] = value
    chosen = hosts
    if form == FORMAT_0_7 and len(hosts) > 1:
        chosen = [each for each in hosts if request.form.get(_home_field(each))]
    if not chosen:
        text = "Choose a broker." if hosts else "No broker answers that can create topics."
        raise FieldError("brokers", text)
    return name, settings, chosen


def _home_field(host: TopicHost) -> str:
    return f"broker-{host.broker_id}"


# -- alter and delete ---------------------------------------------------------------------------


def _settings(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    return _settings_page(sources, request, sources.topics.topic(name), Form())


def _settings_page(
    sources: Sources, request: PageRequest, topic: TopicView, form: Form
) -> PageResponse:
    viewer = request.viewer
    if not (viewer.alters_topic(topic.name) or viewer.deletes_topic(topic.name)):
        raise viewer.refusal(f"administer topic {quoted(topic.name)}")
    rows: list[SettingRow] = []
    if viewer.alters_topic(topic.name):
        described = sources.topics.settings(topic)
        rows = sources.topic_changes.rows(described, with_defaults=viewer.administers)
    return sources.form_page(
        request,
        "topics",
        "topic_settings.html",
        form,
        topic=topic,
        rows=rows,
        format=format_of(topic),
        count=partition_count(topic),
        is_shared=is_shared(topic),
        copies=_copies(sources, topic) if is_shared(topic) and viewer.administers else None,
        most_partitions=MAX_PARTITIONS,
        hints=_HINTS,
    )


def _copies(sources: Sources, topic: TopicView) -> int | None:
    """How many copies each partition has at least; None where that isn't known."""
    try:
        known = sources.replicas.view().of_topic(topic.name)
    except HermesError:
        return None
    counts = (len(each.partition.target) for each in known.values())
    return min(counts) if len(known) == len(topic.partitions) else 1


def _change(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    try:
        if "delete" in request.form:
            return _delete(sources, request, topic)
        if not request.viewer.alters_topic(name):
            raise request.viewer.refusal(f"administer topic {quoted(name)}")
        if "grow" in request.form:
            return _grow(sources, request, topic)
        return _alter(sources, request, topic)
    except (InputError, SettingRefusedError) as error:
        return _settings_page(sources, request, topic, Form.refused(request.form, _placed(error)))


def _alter(sources: Sources, request: PageRequest, topic: TopicView) -> PageResponse:
    reset = request.form.get("reset", "")
    if reset:
        if reset not in FORM_SETTINGS:
            raise InputError("There is no such setting of a topic.")
        with failures_logged(request, f"reset {reset} of topic {quoted(topic.name)}"):
            sources.topic_changes.alter(topic, {}, [reset])
        log_change(request, f"reset {reset} of topic {quoted(topic.name)}")
        return redirect(f"{_path(topic.name)}/settings?done=altered")
    given = {}
    for key in FORM_SETTINGS:
        value = typed(request, key, _MOST_SETTING)
        if key in request.form and value != request.form.get(f"was-{key}", ""):
            if not value:
                raise FieldError(key, "To have the default again, reset it.")
            given[key] = value
    if not given:
        raise InputError("Nothing was typed that is not in force already.")
    with failures_logged(request, f"alter topic {quoted(topic.name)}: {_shown(given)}"):
        sources.topic_changes.alter(topic, given)
    log_change(request, f"altered topic {quoted(topic.name)}: {_shown(given)}")
    return redirect(f"{_path(topic.name)}/settings?done=altered")


def _grow(sources: Sources, request: PageRequest, topic: TopicView) -> PageResponse:
    now = partition_count(topic)
    count = typed_number(request, PARTITIONS, now + 1, MAX_PARTITIONS)
    if count is None:
        raise FieldError(PARTITIONS, f"Expected more than {now:,}.")
    try:
        with failures_logged(request, f"give topic {quoted(topic.name)} {count} partitions"):
            sources.topic_changes.alter(topic, {PARTITIONS: str(count)})
    except SettingRefusedError as error:
        raise FieldError(PARTITIONS, str(error)) from error
    log_change(request, f"gave topic {quoted(topic.name)} {count} partitions instead of {now}")
    return redirect(f"{_path(topic.name)}/settings?done=grown")


def _delete(sources: Sources, request: PageRequest, topic: TopicView) -> PageResponse:
    if not request.viewer.deletes_topic(topic.name):
        raise request.viewer.refusal(f"delete topic {quoted(topic.name)}")
    # What can't be typed, such as a change of direction, is taken as it is shown.
    if request.form.get(_CONFIRM, "") not in (topic.name, printable(topic.name)):
        raise FieldError(_CONFIRM, "This is not the topic’s name.")  # noqa: RUF001
    with failures_logged(request, f"delete topic {quoted(topic.name)}"):
        sources.topic_changes.delete(topic)
    log_change(request, f"deleted topic {quoted(topic.name)}")
    return redirect("/topics?done=deleted")


# -- both ---------------------------------------------------------------------------------------

#: What the values of some kinds look like.
_HINTS: Final = {
    "size": "such as 64KiB or 1GiB",
    "duration": "such as 30s, 12h or 7d",
    "size or `unlimited`": "such as 10GiB, or unlimited",
    "duration or `unlimited`": "such as 12h or 7d, or unlimited",
}


def _placed(error: HermesError) -> HermesError:
    if isinstance(error, FieldError):
        return error
    text = str(error)
    if isinstance(error, TopicExistsError | InvalidTopicError | InvalidTopicBrokerError):
        return FieldError(_NAME, text)
    key, colon, reason = text.partition(": ")
    if colon and key in (*FORM_SETTINGS, PARTITIONS, COPIES, FORMAT):
        return FieldError(key, reason)
    return FieldError(WHOLE, text)


def _shown(settings: dict[str, str]) -> str:
    return ", ".join(f"{key}: {quoted(value)}" for key, value in settings.items())


def _path(name: str) -> str:
    return f"/topics/{quote(name, safe='')}"


ROUTES: Final = (
    PageRoute("GET", ("create-topic",), _new, PagePermission.OWN_CHOICE, acts=True),
    PageRoute("POST", ("create-topic",), _create, PagePermission.OWN_CHOICE, acts=True),
    PageRoute("GET", ("topics", "*", "settings"), _settings, PagePermission.TOPIC, acts=True),
    PageRoute("POST", ("topics", "*", "settings"), _change, PagePermission.TOPIC, acts=True),
)
