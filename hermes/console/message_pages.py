"""The pages with messages: search, single messages, downloads, live tail."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from hermes.client.places import parse_time_ms
from hermes.console.filters import message_filter
from hermes.console.forms import format_places, parse_places
from hermes.console.live_tail import MOST_PARTITIONS, known_ends, tail
from hermes.console.messages import (
    STARTS,
    FoundMessage,
    MessageQuery,
    SearchEnd,
    SearchProgress,
    UnreadableRange,
)
from hermes.console.page_request import (
    InputError,
    NoSuchPageError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    whole_number,
)
from hermes.console.partition_search import read_one
from hermes.console.payload_display import FORMATS, ValueReader
from hermes.console.search import Search
from hermes.console.sources import Sources
from hermes.console.topic_views import PartitionRow, TopicView
from hermes.protocol import Codec
from hermes.quoting import shell_line

_COUNTS: Final = (20, 50, 100, 200, 500)
_SCANS: Final = (1_000, 10_000, 100_000, 1_000_000)
_ONE_CHARACTERS: Final = 1_000_000
_LIVE_FIRST: Final = 20
_FILTERS: Final = ("q", "field", "key", "header")
_PARAMS: Final = ("partition", "start", "value", "at", "count", *_FILTERS, "scan", "as", "schema")


def _messages(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    params = _params(request)
    partitions = _partitions(topic, params["partition"])
    problem = ""
    results: Iterable[Any] = ()
    try:
        wanted = _wanted(sources, request, topic, params)
        results = _search(sources, request, topic, partitions, wanted)
    except InputError as error:
        problem = str(error)
    pieces = sources.renderer.pieces(
        "messages.html",
        **sources.shared(request, "topics"),
        topic=topic,
        params=params,
        fields=_for_form(params),
        is_filtered=any(params[name] for name in _FILTERS),
        results=results,
        problem=problem,
        commands=[]
        if problem
        else _commands(topic, partitions, wanted, params, _registry_name(sources, request)),
        starts=STARTS,
        counts=_COUNTS,
        scans=_SCANS,
        formats=FORMATS,
        registry=_registry_name(sources, request),
    )
    return PageResponse(pieces, 400 if problem else 200)


def _download(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    params = _params(request)
    partitions = _partitions(topic, params["partition"])
    wanted = _wanted(sources, request, topic, params)
    found = _search(sources, request, topic, partitions, wanted)
    return PageResponse(
        _json_lines(name, found),
        content_type="application/x-ndjson",
        headers=_as_file(f"{name}.ndjson"),
    )


def _one(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic, row, wanted, index = _place(sources, request, name)
    message, offset, following, stored = read_one(sources.cluster, topic, row, wanted, index)
    how = request.text("as", "auto")
    schema = request.text("schema")
    reader = ValueReader(how, schema, sources.records_for(request.viewer))
    return sources.page(
        request,
        "topics",
        "message.html",
        topic=topic,
        row=row,
        offset=offset,
        index=index,
        following=following,
        message=message,
        codec="" if stored.codec is Codec.NONE else stored.codec.name.lower(),
        value=reader.show(message.payload or b"", _ONE_CHARACTERS),
        params={"partition": row.name, "offset": offset, "index": index or ""},
        how=how,
        schema=schema,
        formats=FORMATS,
        registry=_registry_name(sources, request),
    )


def _raw(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    """A payload as a file; never as something that a browser would display."""
    topic, row, wanted, index = _place(sources, request, name)
    message, offset, _, _ = read_one(sources.cluster, topic, row, wanted, index)
    file_name = f"{name}-{row.label}-{offset}{f'-{index}' if index else ''}.bin"
    return PageResponse(
        message.payload or b"", content_type="application/octet-stream", headers=_as_file(file_name)
    )


def _live(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    params = _params(request)
    partitions = _partitions(topic, params["partition"])[:MOST_PARTITIONS]
    wanted = MessageQuery(
        "last", -1, _LIVE_FIRST, _LIVE_FIRST, None, _reader(sources, request, params)
    )
    found = _search(sources, request, topic, partitions, wanted)
    rows = [each for each in found if isinstance(each, FoundMessage | UnreadableRange)]
    return sources.page(
        request,
        "topics",
        "live.html",
        topic=topic,
        params=params,
        followed=len(partitions),
        rows=rows,
        places=format_places(known_ends(topic, partitions)),
        formats=FORMATS,
        registry=_registry_name(sources, request),
    )


def _tail(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    topic = sources.topics.topic(name)
    params = _params(request)
    partitions = _partitions(topic, params["partition"])
    places = parse_places(request.text("at"))
    new = tail(sources.cluster, topic, partitions, places, _reader(sources, request, params))
    page = sources.renderer.page(
        "tail.html", topic=topic, params=params, tail=new, places=format_places(new.places)
    )
    return PageResponse(page)


# -- what is asked for --------------------------------------------------------------------------


def _params(request: PageRequest) -> dict[str, str]:
    defaults = {"start": "last", "count": "50", "scan": "10000", "as": "auto"}
    return {name: request.text(name) or defaults.get(name, "") for name in _PARAMS}


def _wanted(
    sources: Sources, request: PageRequest, topic: TopicView, params: dict[str, str]
) -> MessageQuery:
    start = params["start"]
    if start not in STARTS:
        raise InputError(f"start: expected one of {', '.join(STARTS)}")
    reader = _reader(sources, request, params)
    return MessageQuery(
        start,
        _value(start, params),
        request.number("count", 50, 1, _COUNTS[-1]),
        request.number("scan", 10_000, 1, _SCANS[-1]),
        message_filter(params, reader, holds_records=topic.counts_messages),
        reader,
    )


def _reader(sources: Sources, request: PageRequest, params: dict[str, str]) -> ValueReader:
    return ValueReader(params["as"], params["schema"], sources.records_for(request.viewer))


def _search(
    sources: Sources,
    request: PageRequest,
    topic: TopicView,
    partitions: list[PartitionRow],
    wanted: MessageQuery,
) -> Iterator[FoundMessage | UnreadableRange | SearchProgress | SearchEnd]:
    """Search, for as long as the viewer may see what is found."""
    found = Search(sources.cluster, topic, partitions, wanted).run()
    return request.viewer.seeing(topic.name, found)


def _value(start: str, params: dict[str, str]) -> int:
    """The offset or time to start from; -1 where none is needed."""
    text = params["value"]
    if start == "beginning" or (start == "last" and not text):
        return -1
    if start == "time":
        try:
            return parse_time_ms(params["at"] or text)
        except ValueError as error:
            raise InputError(f"Time: {error}") from error
    number = whole_number(text.replace(",", ""))
    if number is None:
        raise InputError("Offset: expected a whole number")
    return number


def _for_form(params: dict[str, str]) -> dict[str, str]:
    """The parameters for the form: a valid time is shown in the picker, to the second."""
    if params["start"] != "time" or params["at"]:
        return params
    try:
        moment = datetime.fromtimestamp(parse_time_ms(params["value"]) // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return params
    return {**params, "value": "", "at": f"{moment:%Y-%m-%dT%H:%M:%S}"}


def _partitions(topic: TopicView, name: str) -> list[PartitionRow]:
    if not name:
        return list(topic.partitions)
    row = topic.partition(name)
    if row is None:
        raise NoSuchPageError(f"Topic {topic.name} has no partition {name}.")
    return [row]


def _place(
    sources: Sources, request: PageRequest, name: str
) -> tuple[TopicView, PartitionRow, int, int]:
    topic = sources.topics.topic(name)
    (row,) = _partitions(topic, request.text("partition") or topic.partitions[0].name)
    return topic, row, request.number("offset", row.earliest or 0), request.number("index", 0)


# -- what is made of it -------------------------------------------------------------------------


def _registry_name(sources: Sources, request: PageRequest) -> str:
    records = sources.records_for(request.viewer)
    return "" if records is None else records.name


def _commands(
    topic: TopicView,
    partitions: list[PartitionRow],
    wanted: MessageQuery,
    params: dict[str, str],
    registry: str,
) -> list[str]:
    where = {
        "last": [f"-{wanted.count}", "-e"],
        "beginning": ["beginning", "-c", str(wanted.count), "-e"],
        "offset": [str(wanted.value), "-c", str(wanted.count), "-e"],
        "time": [f"@{wanted.value}", "-c", str(wanted.count), "-e"],
    }[wanted.start]
    if wanted.start == "last" and wanted.value >= 0:
        return []  # the command can't end there
    if wanted.start == "offset" and len(partitions) > 1:
        return []
    commands = []
    holders = dict.fromkeys(row.holder for row in partitions if row.holder in topic.addresses)
    for broker_id in holders:
        words = ["hermes", "consume", "-b", str(topic.addresses[broker_id]), "-t", topic.name]
        if params["partition"]:
            words += ["-p", str(partitions[0].number)]
        if params["as"] == "avro" and not params["schema"]:
            words += ["--registry", registry]
        commands.append(shell_line([*words, "-o", *where]))
    return commands


def _json_lines(
    name: str, found: Iterable[FoundMessage | UnreadableRange | SearchProgress | SearchEnd]
) -> Iterator[bytes]:
    for each in found:
        if isinstance(each, FoundMessage):
            line: dict[str, object] = {
                "topic": name,
                "partition": each.partition,
                "offset": each.offset,
                "next_offset": each.next_offset,
                "time_ms": each.time_ms,
                **_text_or_hex("payload", None if each.is_tombstone else each.payload),
                **_record(each),
            }
        elif isinstance(each, UnreadableRange):
            line = {
                "topic": name,
                "partition": each.partition,
                "offset": each.offset,
                "next_offset": each.next_offset,
                "damage": each.reason,
            }
        elif isinstance(each, SearchEnd) and each.errors:
            line = {"topic": name, "errors": each.errors}
        else:
            yield b""  # here a search ends whose client has gone
            continue
        yield json.dumps(line).encode() + b"\n"


def _record(each: FoundMessage) -> dict[str, object]:
    """A record's key and headers, in hex where they aren't text."""
    shown: dict[str, object] = {}
    if each.key is not None:
        shown |= _text_or_hex("key", each.key)
    if each.headers:
        shown["headers"] = [
            {"name": name, **_text_or_hex("value", value)} for name, value in each.headers
        ]
    return shown


def _text_or_hex(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {f"{name}_hex": data.hex()}


def _as_file(name: str) -> dict[str, str]:
    plain = re.sub(r"[^ !#$&-.0-9;=@-\[\]^_`a-z{}~]", "_", name)
    value = f'attachment; filename="{plain}"'
    if plain != name:  # as RFC 6266 has it: the second counts, the first is for older clients
        value += f"; filename*=UTF-8''{quote(name, safe='')}"
    return {"Content-Disposition": value}


ROUTES: Final = (
    PageRoute("GET", ("topics", "*", "messages"), _messages, PagePermission.MESSAGES),
    PageRoute("GET", ("topics", "*", "download"), _download, PagePermission.MESSAGES),
    PageRoute("GET", ("topics", "*", "message"), _one, PagePermission.MESSAGES),
    PageRoute("GET", ("topics", "*", "raw"), _raw, PagePermission.MESSAGES),
    PageRoute("GET", ("topics", "*", "live"), _live, PagePermission.MESSAGES),
    PageRoute("GET", ("topics", "*", "tail"), _tail, PagePermission.MESSAGES),
)
