"""What one thread does: takes messages, has them handled, and sends on those that fail.

It polls its streams, one message at a time. A message that fails is first stored in the next retry
topic or among the dead letters, acknowledged as flushed; only then does the worker ask its stream
for the next one, which is what lets the group commit the message's offset. So no message can get
lost in between; after a crash it may be handled again.

A message that is not due yet, or that can't be sent on now, is put back, and its partition is
paused until then; other partitions go on. One due in a moment stays in hand; only its stream waits.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from hermes.backoff import growing_pause
from hermes.client.groups.streams import MessageStream, StreamMessage
from hermes.client.metrics import RetryCounters
from hermes.client.retrying.ladder import Ladder, Rung, is_hopeless
from hermes.client.retrying.letter_headers import read_letter
from hermes.client.retrying.letters import Letter, reason_of
from hermes.client.retrying.messages import RetryMessage
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ConsumerTimeoutError, EncodingError, HermesError
from hermes.quoting import printable
from hermes.rate_limit import RateLimit

_log = logging.getLogger(__name__)

# How often a worker without messages looks around: nothing says that a lease lasts again.
_LOOK_SECONDS: Final = 0.1
# A message that is due so soon stays in hand: putting it back costs a fetch of it and of what was
# fetched after it.
_SHORT_WAIT_SECONDS: Final = 0.2
# The pauses of a partition whose messages can't be sent on.
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
# How much of a reason a log line shows.
_SHOWN_REASON: Final = 200

_Place: TypeAlias = tuple[str, BrokerPartition]


@dataclass(slots=True)
class WorkerContext:
    """What the workers of a consumer share.

    Attributes:
        publish: stores a letter in a topic, on disk when it returns.
        timeout_seconds: for how long there may be no message for any worker; None for ever.
        clock: seconds that never go backwards.
        last_message: when there was a message, or one was waited for, by the clock.
        log_limit: limits how often failures are logged.
    """

    ladder: Ladder
    handle: Callable[[RetryMessage], object]
    decode: Callable[[str, bytes], Any] | None
    publish: Callable[[str, Letter], object]
    timeout_seconds: float | None
    counters: RetryCounters
    clock: Callable[[], float] = time.monotonic
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    is_stopped: bool = False
    last_message: float = field(init=False)
    log_limit: RateLimit = field(init=False)

    def __post_init__(self) -> None:
        self.last_message = self.clock()
        self.log_limit = RateLimit(self.clock)


@dataclass(slots=True)
class _Source:
    """A stream of this worker.

    Attributes:
        has_news: whether polling it may give something.
        in_hand: its last message, if that is not finished with; to be handled when `due`.
    """

    stream: MessageStream
    is_retries: bool = False
    has_news: bool = True
    in_hand: StreamMessage | None = None
    due: float = 0.0


@dataclass(slots=True)
class _PausedPartition:
    """A partition, one of whose messages was put back.

    Attributes:
        offset: where the message starts.
        since: when it was put back first, by the clock.
        until: when to go on; 0 once it does.
        failures: how many times in a row it couldn't be sent on.
    """

    stream: MessageStream
    offset: int
    since: float
    until: float = 0.0
    failures: int = 0


class Worker:
    """Serves a stream of each topic and one of the retry topics, in the thread that runs it."""

    def __init__(
        self, streams: Sequence[MessageStream], retries: MessageStream, shared: WorkerContext
    ) -> None:
        self._sources = [*map(_Source, streams), _Source(retries, is_retries=True)]
        self._shared = shared
        self._held: dict[_Place, _PausedPartition] = {}
        self._news = threading.Event()
        for source in self._sources:
            source.stream.observe(self._observer(source))

    def run(self) -> None:
        """Handle messages until the workers are stopped, or the streams have ended.

        Raises:
            ConsumerTimeoutError: there was no message for too long.
            HermesError: what a stream raises.
            BaseException: what the application's function raised, if it is no `Exception`.
        """
        try:
            while not self._shared.is_stopped:
                self._resume_due()
                if not self._serve_round():
                    self._wait()
        except StopIteration:
            return
        finally:
            self._let_go()

    # -- rounds ---------------------------------------------------------------------------------

    def _observer(self, source: _Source) -> Callable[[], None]:
        def changed() -> None:
            source.has_news = True
            self._news.set()

        return changed

    def _serve_round(self) -> bool:
        found = False
        for source in self._sources:
            if self._shared.is_stopped:
                break
            message = source.in_hand
            if message is None:
                if not source.has_news:
                    continue
                source.has_news = False
                message = source.stream.poll(self)
                if message is None:
                    continue
                source.has_news = True
                source.in_hand, source.due = message, 0.0
            elif self._shared.clock() < source.due:
                continue
            found = True
            if self._serve(source, message):
                source.in_hand = None
        return found

    def _wait(self) -> None:
        now = self._shared.clock()
        dues = [each.until for each in self._held.values() if each.until]
        dues += [each.due for each in self._sources if each.in_hand is not None]
        limit = self._shared.timeout_seconds
        if dues:
            self._shared.last_message = now
        elif limit is not None and now - self._shared.last_message >= limit:
            raise ConsumerTimeoutError(f"there was no message for {limit:g} s")
        if not self._news.wait(max(0.0, min([_LOOK_SECONDS, *(each - now for each in dues)]))):
            for source in self._sources:  # a lease may last again
                source.has_news = True
        self._news.clear()

    def _let_go(self) -> None:
        for source in self._sources:
            if source.in_hand is not None:
                source.stream.put_back()
                source.in_hand = None
            source.stream.finish_if_reader(self)
        for place, held in self._held.items():  # the next run knows nothing of these
            if held.until:
                held.stream.resume(place)

    # -- one message ----------------------------------------------------------------------------

    def _serve(self, source: _Source, message: StreamMessage) -> bool:
        """Handle a message, or put it back; False if it stays in hand until it is due."""
        shared = self._shared
        shared.last_message = shared.clock()
        place = message.topic, BrokerPartition(message.broker_id, message.partition)
        rung: Rung | None = Rung(message.topic, 0)
        before = None
        if source.is_retries:
            rung, before = shared.ladder.rung(message.topic), _letter_in(message)
        assert rung is not None, f"{message.topic} is in a stream of retry topics"
        if before is not None:
            seconds = self._seconds_left(place, message, rung, before)
            if seconds > _SHORT_WAIT_SECONDS:
                self._hold(source, place, message, seconds)
                return True
            if seconds > 0:
                source.due = shared.clock() + seconds
                return False
        failure = self._try(rung, message, before)
        if failure is None:
            shared.counters.count(handled=1)
        else:
            letter = self._letter(message, before, failure)
            error = self._send_on(rung, letter, failure)
            if error is not None:
                self._hold_unsent(source, place, message, letter, error)
                return True
        self._held.pop(place, None)
        return True

    def _seconds_left(
        self, place: _Place, message: StreamMessage, rung: Rung, letter: Letter
    ) -> float:
        """No longer than its delay, whatever the clock says of the machine on which it failed."""
        shared = self._shared
        delay = shared.ladder.delay(rung.level)
        seconds = min(delay, delay - (shared.now_ms() - letter.failed_ms) / 1000)
        held = self._held.get(place)
        if held is not None and held.offset == message.offset:
            seconds = min(seconds, held.since + delay - shared.clock())
        return seconds

    def _try(self, rung: Rung, message: StreamMessage, before: Letter | None) -> Exception | None:
        handle = self._shared.handle
        try:
            if before is None:
                handle(RetryMessage.first(message, self._decoded(rung.topic, message.message)))
            else:
                handle(RetryMessage.again(before, self._decoded(rung.topic, before.payload)))
        except Exception as error:
            return error
        return None

    def _decoded(self, topic: str, payload: bytes | None) -> Any:
        decode = self._shared.decode
        if decode is None or payload is None:  # a tombstone has nothing to decode
            return payload
        try:
            return decode(topic, payload)
        except Exception as error:
            raise EncodingError(f"the decoder failed: {reason_of(error)}") from error

    def _letter(self, message: StreamMessage, before: Letter | None, failure: Exception) -> Letter:
        now_ms, reason, group = self._shared.now_ms(), reason_of(failure), self._shared.ladder.group
        if before is None:
            payload, topic, partition, offset, _, broker = message
            place = topic, broker, partition, offset
            beside = message.key, message.headers, message.timestamp_ms
            return Letter(group, *place, 1, now_ms, now_ms, reason, payload, *beside)
        attempts = before.attempts + 1
        return replace(before, group=group, attempts=attempts, failed_ms=now_ms, reason=reason)

    def _send_on(self, rung: Rung, letter: Letter, failure: Exception) -> HermesError | None:
        shared = self._shared
        dead = shared.ladder.dead(rung.topic)
        target = dead if is_hopeless(failure) else shared.ladder.above(rung)
        try:
            shared.publish(target, letter)
        except HermesError as error:
            return error
        is_dead = target == dead
        shared.counters.count(failed=1, retried=not is_dead, dead=is_dead)
        if is_dead:
            self._report(
                f"{letter.origin}, offset {letter.offset}: after attempt {letter.attempts} it is "
                f"a dead letter in {dead}: {_shown(letter)}"
            )
        return None

    def _report(self, line: str) -> None:
        suppressed = self._shared.log_limit.allow("failure")
        if suppressed is not None:
            more = f" ({suppressed} more such lines suppressed)" if suppressed else ""
            _log.warning("%s%s", line, more)

    # -- partitions that wait -------------------------------------------------------------------

    def _hold(
        self, source: _Source, place: _Place, message: StreamMessage, seconds: float
    ) -> _PausedPartition:
        now = self._shared.clock()
        source.stream.pause(place)
        source.stream.put_back()
        held = self._held.get(place)
        if held is None or held.offset != message.offset:
            held = self._held[place] = _PausedPartition(source.stream, message.offset, now)
        held.until = now + seconds
        return held

    def _hold_unsent(
        self,
        source: _Source,
        place: _Place,
        message: StreamMessage,
        letter: Letter,
        error: HermesError,
    ) -> None:
        self._shared.counters.count(unsent=1)
        held = self._hold(source, place, message, 0.0)
        pause = growing_pause(_FIRST_PAUSE_SECONDS, held.failures, _LONGEST_PAUSE_SECONDS)
        held.failures += 1
        held.until += pause
        self._report(
            f"{letter.origin}, offset {letter.offset}: it failed ({_shown(letter)}) and can't be "
            f"sent on: {error}; its partition waits, and it is handled again in {pause:g} s"
        )

    def _resume_due(self) -> None:
        if not self._held:
            return
        now = self._shared.clock()
        for place, held in self._held.items():
            if held.until and now >= held.until:
                held.until = 0.0
                held.stream.resume(place)


def _letter_in(message: StreamMessage) -> Letter | None:
    return read_letter(message.message, message.key, message.headers)


def _shown(letter: Letter) -> str:
    return printable(letter.reason, _SHOWN_REASON)
