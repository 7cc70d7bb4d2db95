"""The page that produces a message to a topic."""

from typing import Final
from urllib.parse import quote, urlencode

from hermes.console.change_log import failures_logged, log_change
from hermes.console.forms import FieldError, Form, typed, typed_number
from hermes.console.message_sender import (
    AVRO,
    MOST_PAYLOAD_BYTES,
    TEXT,
    TOMBSTONE,
    VALUES,
    TypedMessage,
)
from hermes.console.page_request import (
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
)
from hermes.console.registry_records import RegistryRecords
from hermes.console.sources import Sources
from hermes.console.topic_views import TopicView
from hermes.errors import HermesError
from hermes.quoting import quoted

_MOST_KEY: Final = 1_000
_MOST_HEADERS: Final = 4_000
_MOST_VERSION: Final = 2**31 - 1
#: What the next form begins with.
_KEPT: Final = ("value", "partition", "subject", "version")


def _form(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    kept = {each: request.text(each) for each in _KEPT}
    values = {"subject": f"{name}-value", **{key: text for key, text in kept.items() if text}}
    return _page(sources, request, sources.topics.topic(name), Form({"value": TEXT, **values}))


def _page(sources: Sources, request: PageRequest, topic: TopicView, form: Form) -> PageResponse:
    records = sources.records_for(request.viewer)
    sent = topic.partition(request.text("sent"))
    return sources.form_page(
        request,
        "topics",
        "produce.html",
        form,
        topic=topic,
        values=[each for each in VALUES if _is_offered(each, topic, records)],
        has_registry=records is not None,
        subjects=_subjects(records),
        most_bytes=MOST_PAYLOAD_BYTES,
        sent=sent,
        offset=request.number("offset", 0),
    )


def _is_offered(value: str, topic: TopicView, records: RegistryRecords | None) -> bool:
    if value == AVRO:
        return records is not None
    return value != TOMBSTONE or topic.counts_messages


def _subjects(records: RegistryRecords | None) -> list[str]:
    """The subjects to choose from; none while the registry doesn't answer."""
    try:
        return [] if records is None else records.subjects()
    except HermesError:  # whoever sends a record hears why
        return []


def _produce(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    try:
        given = _typed(sources, request, topic)
        with failures_logged(request, f"produce a message to topic {quoted(name)}"):
            sent = sources.sender.send(topic, typed(request, "partition"), given)
    except HermesError as error:
        return _page(sources, request, topic, Form.refused(request.form, error))
    log_change(
        request,
        f"produced a message of {sent.size_bytes} bytes to topic {quoted(name)}, partition "
        f"{sent.partition}, at offset {sent.offset}",
    )
    kept = {each: request.form.get(each, "") for each in _KEPT}
    query = {"sent": sent.partition, "offset": sent.offset, **kept}
    shown = urlencode({key: value for key, value in query.items() if value != ""})
    return redirect(f"/topics/{quote(name, safe='')}/produce?{shown}")


def _typed(sources: Sources, request: PageRequest, topic: TopicView) -> TypedMessage:
    kind = typed(request, "value")
    if kind not in VALUES or not _is_offered(kind, topic, sources.records_for(request.viewer)):
        raise FieldError("value", "Choose one of these.")
    key = request.form.get("key", "")
    if len(key) > _MOST_KEY:
        raise FieldError("key", f"It is longer than {_MOST_KEY:,} characters.")
    return TypedMessage(
        kind,
        request.form.get("payload", ""),
        key,
        typed(request, "headers", _MOST_HEADERS),
        typed(request, "subject"),
        typed_number(request, "version", 1, _MOST_VERSION),
    )


ROUTES: Final = (
    PageRoute("GET", ("topics", "*", "produce"), _form, PagePermission.PRODUCING, acts=True),
    PageRoute("POST", ("topics", "*", "produce"), _produce, PagePermission.PRODUCING, acts=True),
)
