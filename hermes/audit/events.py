"""What the parts of a pipeline report on the topic hermes-audit: values <-> JSON.

Each event is one message: a JSON object. All have

    audit        the version of this format: 1
    tier         who counts: `producers`, `cluster:NAME`, `mirror:NAME`, `group:NAME`, `spark:NAME`
    process      the process that reports: 16 hexadecimal digits, made anew at each start
    sequence     the event's number in that process, from 0, without gaps
    time_ms      when it was made
    window_ms    how long the windows are
    host         where the process runs
    kind         what else there is:

`counts`: messages of one topic.

    topic        their topic
    target_topic the topic's name further on, if it is another (a mirror's)
    log          of which log, with start and end: the range of offsets that was counted, all of
                 it. Without: whatever was counted since the last event
    since_ms     all that was appended before the range's start was appended before this time; 0
                 if nothing was, absent if that is not known
    windows      {start of the window in ms: {process that stamped: [messages, sum]}}; unstamped
                 ones are in window "0" of process "0". The sum is of `stamps.mixed`, in hex
    unknown      the same for messages that a producer sent without learning what became of them
    damaged      how many damaged messages were skipped
    removed      how many offsets of the range have no message, since compaction took them
    missing      the same where nothing is compacted: the log has lost them
    spans        {start of the window in ms: [start, end]}: between which offsets of the range its
                 messages are, at most; of topics of Kafka's format
    part         [number, of how many]: a range with many windows takes several events

`gap`: topic, log, start, end as above; why: `lost` (retention was quicker), `damaged`, or `cut`: it
was counted, and the log ends before it now.

`committed`: how far a group of Kafka's consumers, whose tier it is, has committed.

    topic        of which topic
    of           the tier that counts the messages of the same logs
    logs         {log: [offset that is committed, offset at which the log begins]}
    set_back     {log: [from, to]}: where it has committed less than before

`alive`, at least once per window, and `closed`, the last event:

    covered_ms   of a producer: what it stamped before this time is in its events so far
    reached      {topic: {log: [offset, time in ms]}}: at that time the log ended at the offset,
                 up to which it was counted

A reader recognises an event that was stored twice by process and sequence, and a range that was
counted twice by its offsets. Unknown keys are ignored.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from hermes.errors import AuditEventError
from hermes.quoting import quoted

_WHY: Final[dict[str, Literal["lost", "damaged", "cut"]]] = {"damaged": "damaged", "cut": "cut"}


_VERSION: Final = 1
_MAX_INT64: Final = (1 << 63) - 1
_MASK: Final = (1 << 64) - 1
_HEX: Final = re.compile("[0-9a-f]{1,16}")

#: By start of the window and process: how many messages, and the sum of them modulo 2^64.
Tallies: TypeAlias = dict[tuple[int, int], tuple[int, int]]

#: By start of the window: between which offsets its messages are.
Spans: TypeAlias = dict[int, tuple[int, int]]

#: The process of messages without a stamp, and the window of those that have no time, either.
NOBODY: Final = 0
UNSTAMPED: Final = (0, NOBODY)


@dataclass(frozen=True, slots=True)
class CountsEvent:
    """Messages of one topic; see the module for what the fields mean.

    Attributes:
        log: empty without a range.
        since_ms: None if it is not known.
        part: this one, from 0, and how many there are.
    """

    topic: str
    target_topic: str = ""
    log: str = ""
    start: int = 0
    end: int = 0
    since_ms: int | None = None
    windows: Tallies = field(default_factory=dict)
    unknown: Tallies = field(default_factory=dict)
    damaged: int = 0
    part: tuple[int, int] = (0, 1)
    removed: int = 0
    missing: int = 0
    spans: Spans = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    topic: str
    of: str
    logs: dict[str, tuple[int, int]]
    set_back: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gap:
    topic: str
    log: str
    start: int
    end: int
    why: Literal["lost", "damaged", "cut"]
    target_topic: str = ""


@dataclass(frozen=True, slots=True)
class Alive:
    """A process lives, or ends properly.

    Attributes:
        closed: whether this is its last event.
        covered_ms: 0 for those that aren't producers.
        reached: by topic and log the offset, and when the log ended there.
    """

    closed: bool
    covered_ms: int = 0
    reached: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)


#: What an event says.
Body: TypeAlias = CountsEvent | Gap | Alive | Committed


class Event(NamedTuple):
    """What one process, a random number from 1 to 2^64 - 1, reports; see the module."""

    tier: str
    process: int
    sequence: int
    time_ms: int
    window_ms: int
    host: str
    body: Body


def add_spans(to: Spans, more: Spans) -> None:
    for window, (start, end) in more.items():
        held_start, held_end = to.get(window, (start, end))
        to[window] = min(held_start, start), max(held_end, end)


def add_tallies(to: Tallies, more: Tallies) -> None:
    for key, (count, total) in more.items():
        held, held_total = to.get(key, (0, 0))
        to[key] = held + count, held_total + total & _MASK


def hex_id(process: int) -> str:
    return f"{process:016x}"


def encode_event(event: Event) -> bytes:
    shown: dict[str, Any] = {
        "audit": _VERSION,
        "tier": event.tier,
        "process": hex_id(event.process),
        "sequence": event.sequence,
        "time_ms": event.time_ms,
        "window_ms": event.window_ms,
        "host": event.host,
    }
    body = event.body
    if isinstance(body, CountsEvent):
        shown |= {"kind": "counts", "topic": body.topic}
        if body.target_topic:
            shown["target_topic"] = body.target_topic
        if body.log:
            shown |= {"log": body.log, "start": body.start, "end": body.end}
        if body.since_ms is not None:
            shown["since_ms"] = body.since_ms
        shown["windows"] = _shown(body.windows)
        if body.unknown:
            shown["unknown"] = _shown(body.unknown)
        if body.damaged:
            shown["damaged"] = body.damaged
        if body.removed:
            shown["removed"] = body.removed
        if body.missing:
            shown["missing"] = body.missing
        if body.spans:
            shown["spans"] = {str(window): span for window, span in body.spans.items()}
        if body.part != (0, 1):
            shown["part"] = body.part
    elif isinstance(body, Gap):
        shown |= {"kind": "gap", "topic": body.topic, "log": body.log, "why": body.why}
        shown |= {"start": body.start, "end": body.end}
        if body.target_topic:
            shown["target_topic"] = body.target_topic
    elif isinstance(body, Committed):
        shown |= {"kind": "committed", "topic": body.topic, "of": body.of, "logs": body.logs}
        if body.set_back:
            shown["set_back"] = body.set_back
    else:
        shown["kind"] = "closed" if body.closed else "alive"
        if body.covered_ms:
            shown["covered_ms"] = body.covered_ms
        if body.reached:
            shown["reached"] = body.reached
    return json.dumps(shown, separators=(",", ":")).encode()


def decode_event(payload: bytes) -> Event:
    """Read the payload of a message. Raises AuditEventError."""
    try:
        given = json.loads(payload)
    except (ValueError, RecursionError):
        raise AuditEventError(f"not JSON: {quoted(payload)}") from None
    fields = _EventFields(given)
    version = fields.number("audit")
    if version != _VERSION:
        raise AuditEventError(f"version {version} of the format; this Hermes knows {_VERSION}")
    kind = fields.text("kind")
    body: Body
    if kind == "counts":
        body = _counts(fields)
    elif kind == "gap":
        why = fields.text("why")
        body = Gap(
            fields.text("topic"),
            fields.text("log"),
            *fields.range(),
            _WHY.get(why, "lost"),
            fields.text("target_topic", ""),
        )
    elif kind == "committed":
        logs, set_back = (fields.pairs(key) for key in ("logs", "set_back"))
        body = Committed(fields.text("topic"), fields.text("of"), logs, set_back)
    elif kind in ("alive", "closed"):
        body = Alive(kind == "closed", fields.number("covered_ms", 0), _reached(fields))
    else:
        raise AuditEventError(f"unknown kind {quoted(kind)}")
    window_ms = fields.number("window_ms")
    if not window_ms:
        raise AuditEventError("window_ms: expected 1 or more")
    return Event(
        fields.text("tier"),
        _hex(fields.text("process")),
        fields.number("sequence"),
        fields.number("time_ms"),
        window_ms,
        fields.text("host"),
        body,
    )


def _shown(tallies: Tallies) -> dict[str, dict[str, list[int | str]]]:
    shown: dict[str, dict[str, list[int | str]]] = {}
    for (window, process), (count, total) in tallies.items():
        shown.setdefault(str(window), {})[hex_id(process)] = [count, f"{total:x}"]
    return shown


class _EventFields:
    """The keys of an event, each checked when it is asked for."""

    def __init__(self, given: object) -> None:
        if not isinstance(given, dict):
            raise AuditEventError("not a JSON object")
        self._given = given

    def get(self, key: str) -> Any:
        return self._given.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._given.get(key, default)
        if not isinstance(value, str):
            raise AuditEventError(f"{key}: expected text, got {quoted(value)}")
        return value

    def number(self, key: str, default: int | None = None) -> int:
        return _number(key, self._given.get(key, default))

    def pairs(self, key: str) -> dict[str, tuple[int, int]]:
        return {name: _pair(key, pair) for name, pair in _items(key, self._given.get(key) or {})}

    def range(self) -> tuple[int, int]:
        start, end = self.number("start"), self.number("end")
        if end < start:
            raise AuditEventError(f"a range from {start} to {end}")
        return start, end


def _counts(fields: _EventFields) -> CountsEvent:
    log = fields.text("log", "")
    start, end = fields.range() if log else (0, 0)
    part, parts = 0, 1
    if fields.get("part") is not None:
        part, parts = _pair("part", fields.get("part"))
        if not part < parts:
            raise AuditEventError(f"part {part} of {parts}")
    since = fields.get("since_ms")
    return CountsEvent(
        fields.text("topic"),
        fields.text("target_topic", ""),
        log,
        start,
        end,
        None if since is None else _number("since_ms", since),
        _tallies("windows", fields.get("windows")),
        _tallies("unknown", fields.get("unknown") or {}),
        fields.number("damaged", 0),
        (part, parts),
        fields.number("removed", 0),
        fields.number("missing", 0),
        _spans(fields),
    )


def _tallies(key: str, given: Any) -> Tallies:
    found: Tallies = {}
    for window, processes in _items(key, given):
        start = _window(key, window)
        for process, tally in _items(key, processes):
            if not (isinstance(tally, list) and len(tally) == 2 and isinstance(tally[1], str)):
                raise AuditEventError(f"{key}: expected a count and a sum, got {quoted(tally)}")
            found[start, _hex(process)] = _number(key, tally[0]), _hex(tally[1])
    return found


def _spans(fields: _EventFields) -> Spans:
    return {_window("spans", window): span for window, span in fields.pairs("spans").items()}


def _window(key: str, given: str) -> int:
    if not (given.isascii() and given.isdigit()):
        raise AuditEventError(f"{key}: {quoted(given)} is no time")
    return _number(key, int(given[:20]))


def _reached(fields: _EventFields) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        topic: {log: _pair("reached", place) for log, place in _items("reached", logs)}
        for topic, logs in _items("reached", fields.get("reached") or {})
    }


def _items(key: str, given: Any) -> list[tuple[str, Any]]:
    if not isinstance(given, dict):
        raise AuditEventError(f"{key}: expected an object, got {quoted(given)}")
    return list(given.items())


def _pair(key: str, given: Any) -> tuple[int, int]:
    if not (isinstance(given, list) and len(given) == 2):
        raise AuditEventError(f"{key}: expected two numbers, got {quoted(given)}")
    return _number(key, given[0]), _number(key, given[1])


def _number(key: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_INT64:
        raise AuditEventError(f"{key}: expected a number of 0 or more, got {quoted(value)}")
    return value


def _hex(text: str) -> int:
    if not _HEX.fullmatch(text):
        raise AuditEventError(f"expected a hexadecimal number, got {quoted(text)}")
    return int(text, 16)
