"""A bulk redrive: dead letters that are chosen are given once more, at a rate, by a thread.

It reads each partition from where the preview began to where that ended, so that letters which come
back meanwhile are left for the next one. What it has sent is on disk before it counts as done, and
a failure goes back to there: at least once, and in order. All of it lives in this process. When
that ends, so does the redrive: a line of the log says how far it came, twice a minute and at last.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from hermes.backoff import growing_pause
from hermes.client.rate_pacing import Pace
from hermes.client.retrying import Letter
from hermes.client.retrying.redrive import LetterFilter
from hermes.console.change_log import log_change
from hermes.console.cluster_client import ClusterClient
from hermes.console.dead_letters import BATCH_BYTES, LetterSender, ReadLetter, read_letters
from hermes.console.forms import format_places
from hermes.console.page_request import PageRequest
from hermes.console.topic_views import PartitionRow, TopicReader
from hermes.errors import (
    BrokerUnavailableError,
    HermesError,
    UnknownTopicError,
    is_retriable,
)
from hermes.quoting import printable, quoted

_log = logging.getLogger(__name__)

RUNNING, STOPPING, STOPPED, DONE, FAILED = ("running", "stopping", "stopped", "done", "failed")

#: What becomes of a message among dead letters.
SENT, OTHER, STRANGE, FORBIDDEN, TOO_RICH, DAMAGED = KINDS = (
    "sent",
    "other",
    "strange",
    "forbidden",
    "too rich",
    "damaged",
)

_BATCH_MESSAGES: Final = 500
_LOG_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class RedriveOrder:
    """What is to be given once more.

    Attributes:
        destination: one of `DESTINATIONS`.
        rate: at most so many a second; None for no limit.
        ranges: by partition (`BROKER-NUMBER`), from where to where.
    """

    topic: str
    chosen: LetterFilter
    destination: str
    rate: float | None
    ranges: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        chosen = [
            f"{name} {printable(str(value), 200)}"
            for name, value in asdict(self.chosen).items()
            if value not in ("", None)
        ]
        ranges = [f"{name} from {start} to {end}" for name, (start, end) in self.ranges.items()]
        rate = "" if self.rate is None else f", at most {self.rate:g} a second"
        whom = f"to the {self.destination}, {', '.join(chosen) or 'all'}{rate}"
        return f"{whom}; partitions {', '.join(ranges)}"


class _Sorted(NamedTuple):
    kind: str
    letter: Letter | None
    following: int


class Redrive:
    """One that was ordered. Its attributes may be read by any thread.

    Args:
        request: who ordered it, with the rights that count for each letter.

    Attributes:
        error: what it waits for, or why it failed; empty otherwise.
        positions: by partition, up to where it has come.
        counts: by kind, what became of messages.
    """

    def __init__(
        self, cluster: ClusterClient, topics: TopicReader, order: RedriveOrder, request: PageRequest
    ) -> None:
        self.order = order
        self.error = ""
        self.started_ms = time.time_ns() // 1_000_000
        self.positions = {name: start for name, (start, _) in order.ranges.items()}
        self.counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self.request = request
        self._cluster = cluster
        self._topics = topics
        self._stop = threading.Event()
        self._ended = ""  # how
        self._sender = LetterSender(cluster, topics, order.destination)
        self._pace = Pace(order.rate, None, sleep=self._sleep)
        self._failing_since: float | None = None
        self._failures = 0
        self._logged_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, name="hermes-console-redrive", daemon=True
        )

    @property
    def state(self) -> str:
        """One of the words above."""
        return self._ended or (STOPPING if self._stop.is_set() else RUNNING)

    @property
    def is_running(self) -> bool:
        return not self._ended

    @property
    def done(self) -> int:
        return sum(self.positions[name] - start for name, (start, _) in self.order.ranges.items())

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self.order.ranges.values())

    @property
    def places(self) -> str:
        """Where to go on, as the form takes it."""
        return format_places(self.positions)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    # -- in its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        ended = FAILED
        log_change(self.request, f"started a redrive of {quoted(self.order.topic)} {self.order}")
        try:
            for name, (_, end) in self.order.ranges.items():
                while self.positions[name] < end and not self._stop.is_set():
                    self._try(name, end)
            ended = DONE if self.done == self.total else STOPPED
        except HermesError as error:
            self.error = str(error)
        except Exception:
            self.error = "an error of the console's: its log has the traceback"
            _log.exception("a redrive of %s failed", quoted(self.order.topic))
        finally:
            self._sender.close()
            self._ended = ended
            self._log_progress()

    def _try(self, name: str, end: int) -> None:
        try:
            self._read_on(name, end)
        except HermesError as error:
            now = time.monotonic()
            since = self._failing_since = self._failing_since or now
            if not self._may_pass(error) or now - since > _PATIENCE_SECONDS:
                raise
            self.error = str(error)
            self._sender.close()
            pause = growing_pause(_FIRST_PAUSE_SECONDS, self._failures, _LONGEST_PAUSE_SECONDS)
            self._failures += 1
            self._sleep(pause)

    def _may_pass(self, error: HermesError) -> bool:
        if isinstance(error, UnknownTopicError):  # or it is that of a broker that is down
            return any(each.error for each in self._cluster.read(()))
        return is_retriable(error)

    def _read_on(self, name: str, end: int) -> None:
        topic = self._topics.topic(self.order.topic)
        row = topic.partition(name)
        if row is None:
            kind = BrokerUnavailableError if topic.errors else HermesError
            raise kind(f"partition {name} is gone, or its broker does not answer")
        batch: list[_Sorted] = []
        size = 0
        for each in read_letters(self._cluster, topic, row, self.positions[name], end):
            if self._stop.is_set():
                return
            batch.append(self._sorted(each))
            size += _size_of(batch[-1])
            if len(batch) >= _BATCH_MESSAGES or size >= BATCH_BYTES:
                self._give(row, batch)
                batch, size = [], 0
        self._give(row, batch)
        if not self._stop.is_set():
            self.positions[name] = end

    def _sorted(self, each: ReadLetter) -> _Sorted:
        letter = each.letter
        if letter is None:
            return _Sorted(DAMAGED if each.damage else STRANGE, None, each.following)
        if not self.order.chosen.chooses(letter):
            return _Sorted(OTHER, None, each.following)
        if not self.request.viewer.produces_to(self._sender.topic_of(letter)):
            return _Sorted(FORBIDDEN, None, each.following)
        if not self._sender.keeps(letter):
            return _Sorted(TOO_RICH, None, each.following)
        return _Sorted(SENT, letter, each.following)

    def _give(self, row: PartitionRow, batch: Sequence[_Sorted]) -> None:
        letters = [(at, each.letter) for at, each in enumerate(batch, 1) if each.letter is not None]
        payloads = [letter.payload or b"" for _, letter in letters]
        first = done = 0
        for piece in self._pace.pieces(payloads) if payloads else ():
            if self._stop.is_set():
                return
            some = letters[first : first + len(piece)]
            self._sender.send([letter for _, letter in some])
            before, done = done, some[-1][0]
            self._settle(row, batch[before:done])
            first += len(piece)
        self._settle(row, batch[done:])

    def _settle(self, row: PartitionRow, some: Sequence[_Sorted]) -> None:
        self.counts.update(each.kind for each in some)
        if some:
            self.positions[row.name] = some[-1].following
        self.error, self._failing_since, self._failures = "", None, 0
        if time.monotonic() - self._logged_at >= _LOG_SECONDS:
            self._log_progress()

    def _log_progress(self) -> None:
        self._logged_at = time.monotonic()
        counted = ", ".join(f"{count} {kind}" for kind, count in self.counts.items() if count)
        why = f" ({printable(self.error, 300)})" if self.error else ""
        log_change(
            self.request,
            f"redrive of {quoted(self.order.topic)} {self.state}{why}: {counted or 'nothing'}; "
            f"continues from {self.places}",
        )

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)


def _size_of(each: _Sorted) -> int:
    return 0 if each.letter is None else len(each.letter.payload or b"")


class Redrives:
    """The redrives of a console: one for each topic, a few at a time. Thread-safe."""

    MOST_RUNNING: Final = 4
    _MOST_KEPT: Final = 50
    _STOP_SECONDS: Final = 30.0

    def __init__(self, cluster: ClusterClient, topics: TopicReader) -> None:
        self._cluster = cluster
        self._topics = topics
        self._lock = threading.Lock()
        self._found: dict[str, Redrive] = {}
        self._is_closed = False

    def of(self, topic: str) -> Redrive | None:
        """The last one of a topic, whatever its state."""
        return self._found.get(topic)

    def start(self, order: RedriveOrder, request: PageRequest) -> Redrive:
        """Raises HermesError: one of this topic runs already, or too many do."""
        with self._lock:
            last = self._found.get(order.topic)
            if last is not None and last.is_running:
                raise HermesError("A redrive of this topic runs already.")
            running = sum(each.is_running for each in self._found.values())
            if running >= self.MOST_RUNNING or self._is_closed:
                raise HermesError(f"{running} redrives run already: wait for one of them.")
            made = Redrive(self._cluster, self._topics, order, request)
            made.start()  # it may fail: there are no more threads, or no memory for one
            self._found.pop(order.topic, None)
            self._found[order.topic] = made
            for name in [name for name, each in self._found.items() if not each.is_running]:
                if len(self._found) > self._MOST_KEPT:
                    del self._found[name]
        return made

    def close(self) -> None:
        """Stop all, and wait until the log has their ends."""
        with self._lock:
            self._is_closed = True
            running = [each for each in self._found.values() if each.is_running]
        for each in running:
            each.stop()
        for each in running:
            each.join(self._STOP_SECONDS)
