"""Responses on their way to a peer: `MessageSetSend`, `MultiMessageSetSend` and their relatives.

A send is a Twisted producer over a list of parts: bytes, and slices of log segments that go out by
`sendfile`. It first tries to leave at once, within the call that answered the request; only what
the socket can't take is registered with the transport as a producer, which then asks for the rest
whenever there is room. A slice keeps its segment's file open, also while retention deletes it, and
is released when its last byte has left or the connection is lost.

Source of the layouts: Kafka 0.7's MessageSetSend and MultiMessageSetSend; docs/wire-protocol.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from twisted.internet.interfaces import IPullProducer, IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.protocol import (
    ContentFormat,
    ErrorCode,
    fetch_response_header,
    multifetch_response_header,
    record_fetch_entry_header,
    waiting_fetch_entry_header,
    waiting_fetch_response_header,
)
from hermes.server.carriers import Carrier
from hermes.server.fairness import FairScheduler
from hermes.server.pages import PageCache
from hermes.storage import LogSlice

#: The quantum in parts of a response: each costs a system call.
QUANTUM_PARTS = 256

#: About what a slice of a segment holds in memory.
_SLICE_BYTES = 256


@implementer(IPullProducer, IPushProducer)
class FileSend:
    """One response: parts that leave in the order of the wire. It owns the slices among them.

    Args:
        sent_bytes: how much of the first part has left already, where that is bytes.

    Attributes:
        size_bytes: the whole response's.
        sent_bytes: how much has left.
    """

    __slots__ = (
        "_carrier",
        "_finished",
        "_index",
        "_pages",
        "_parts",
        "_position",
        "_registering",
        "_resident_until",
        "_scheduler",
        "_transport",
        "_waiting",
        "_warming",
        "sent_bytes",
        "size_bytes",
    )

    def __init__(self, parts: Iterable[bytes | LogSlice], sent_bytes: int = 0) -> None:
        self._parts: list[bytes | LogSlice] = []
        self.size_bytes = 0
        for part in parts:
            if size := len(part) if isinstance(part, bytes) else part.length:
                self._parts.append(part)
                self.size_bytes += size
        self.sent_bytes = sent_bytes
        self._index = 0
        self._position = sent_bytes  # within the current part
        self._resident_until = 0  # within the current part, when it is a slice
        self._warming = False
        self._waiting = False
        self._registering = False
        self._finished: Callable[[Exception | None], None] | None = None

    def prepend(self, data: bytes) -> None:
        """Put earlier, small responses before this one; only before `start`."""
        self._parts.insert(0, data)
        self.size_bytes += len(data)

    def memory_bytes(self) -> int:
        """About how much memory the response holds until it has left."""
        return sum(len(p) if isinstance(p, bytes) else _SLICE_BYTES for p in self._parts)

    def start(
        self,
        transport: Any,
        carrier: Carrier,
        pages: PageCache,
        scheduler: FairScheduler,
        finished: Callable[[Exception | None], None],
    ) -> bool:
        """Send what can leave at once, and the rest as the transport's producer.

        `finished` is called once when a response that did not leave at once is through, with None,
        or with the exception that ended it; never when `start` returns True.

        Returns:
            Whether everything has left already.

        Raises:
            OSError: the connection is gone, or the file can't be read; abort the connection.
            EOFError: the segment is shorter than it was.
        """
        self._transport, self._carrier, self._pages = transport, carrier, pages
        self._scheduler = scheduler
        self._finished = finished
        try:
            done = self._pump()
        except BaseException:
            self._finished = None
            self.release()
            raise
        if done:
            self._finished = None
        elif self._finished is not None:
            # Registering asks for more at once, from within this call; the quantum is used
            # up and the caller has yet to learn that it isn't through: wait for the transport.
            self._registering = True
            transport.registerProducer(self, carrier.is_pushed)
            self._registering = False
        return done

    def resumeProducing(self) -> None:
        """The transport has room: send on, after those that wait."""
        if self._finished is None:
            return
        self._carrier.writable()
        self._go_on()

    def pauseProducing(self) -> None:
        """The transport has no room: a push producer sends no more until it has."""
        if self._finished is not None:
            self._carrier.full()

    def _go_on(self) -> None:
        if self._warming or self._registering or self._waiting:
            return
        if self._scheduler.is_crowded:
            self._wait()  # and the transport asks no more before the next send
        else:
            self._send_on()

    def _wait(self) -> None:
        self._waiting = True
        self._scheduler.resume_later(self._send_on_later)

    def _send_on_later(self) -> None:
        self._waiting = False
        if self._finished is not None and self._carrier.may_go_on():
            self._send_on()

    def _send_on(self) -> None:
        began = self._scheduler.now()
        try:
            done = self._pump()
        except (OSError, EOFError) as error:
            self._end(error)
        else:
            self._scheduler.count_used(began)
            if done:
                self._end(None)

    def stopProducing(self) -> None:
        self._finished = None
        if not self._warming:  # else the thread still reads: released when it comes back
            self.release()

    def release(self) -> None:
        for part in self._parts[self._index :]:
            if not isinstance(part, bytes):
                part.release()
        self._index = len(self._parts)

    def _pump(self) -> bool:
        """Send for one quantum; True when everything has left."""
        budget = self._scheduler.quantum_bytes
        parts, carrier = self._parts, self._carrier
        last_part = self._index + QUANTUM_PARTS
        while self._index < len(parts):
            part = parts[self._index]
            if isinstance(part, bytes):
                left = len(part) - self._position
                more = self._index + 1 < len(parts)
                view = memoryview(part)[self._position :] if self._position else part
                sent = carrier.send_bytes(view, more)
            else:
                left = part.length - self._position
                sent = self._send_slice(part, min(left, max(budget, 1)))
                if sent < 0:
                    return False
            budget -= sent
            self.sent_bytes += sent
            if sent == left:
                if not isinstance(part, bytes):
                    part.release()
                self._index += 1
                self._position = self._resident_until = 0
                if self._index == last_part and self._index < len(parts):
                    self._await_room()
                    return False
                continue
            self._position += sent
            if sent == 0 or budget <= 0:
                self._await_room()
                return False
        return True

    def _await_room(self) -> None:
        if not (self._carrier.wake_when_writable() or self._waiting):
            self._wait()

    def _send_slice(self, part: LogSlice, count: int) -> int:
        """Send up to `count` bytes of a slice; -1 when it has to be warmed first."""
        fd, begin = part.fileno(), part.position + self._position
        if self._position >= self._resident_until:
            resident = self._pages.resident_until(fd, begin, begin + count)
            if resident <= begin:
                self._warm(part, begin)
                return -1
            self._resident_until = resident - part.position
        return self._carrier.send_file(fd, begin, min(count, self._resident_until - self._position))

    def _warm(self, part: LogSlice, begin: int) -> None:
        self._warming = True
        warmed = self._pages.warm(part.fileno(), begin, part.position + part.length)
        warmed.addCallbacks(self._warmed, self._warm_failed, callbackArgs=(part,))

    def _warmed(self, end: int, part: LogSlice) -> None:
        self._warming = False
        if self._finished is None:
            self.release()
            return
        # Taken as resident without another probe: under memory pressure the pages may be gone
        # again, and probing forever would never send.
        self._resident_until = end - part.position
        self._go_on()

    def _warm_failed(self, failure: Failure) -> None:
        self._warming = False
        if self._finished is None:
            self.release()
            return
        self._end(OSError(f"could not read the segment: {failure.getErrorMessage()}"))

    def _end(self, error: Exception | None) -> None:
        finished, self._finished = self._finished, None
        self.release()
        self._transport.unregisterProducer()
        self._carrier.unregistered()
        if finished is not None:
            finished(error)


class MessageSetSend(FileSend):
    """The response to a fetch: `int32 size | int16 error |` a slice of one segment, or None."""

    __slots__ = ("error", "messages")

    def __init__(self, error: ErrorCode, messages: LogSlice | bytes | None = None) -> None:
        self.error = error
        self.messages = messages
        header = fetch_response_header(0 if messages is None else _size(messages), error)
        super().__init__((header,) if messages is None else (header, messages))


class Fetched(NamedTuple):
    """What answers one fetch of several. `high_watermark` is -1 where there is none to be told.

    `before`: what goes before the messages.
    """

    error: ErrorCode
    messages: LogSlice | bytes | None = None
    high_watermark: int = -1
    content: ContentFormat = ContentFormat.MESSAGES
    before: bytes = b""

    @property
    def size_bytes(self) -> int:
        return 0 if self.messages is None else _size(self.messages) + len(self.before)

    def release(self) -> None:
        if self.messages is not None and not isinstance(self.messages, bytes):
            self.messages.release()


class MultiMessageSetSend(FileSend):
    """The response to a multifetch: `int32 size | int16 0 |` then a `MessageSetSend` per fetch."""

    __slots__ = ()

    def __init__(self, fetched: Sequence[Fetched]) -> None:
        parts: list[bytes | LogSlice] = [b""]
        for each in fetched:
            parts.append(fetch_response_header(each.size_bytes, each.error))
            if each.messages is not None:
                parts.append(each.messages)
        parts[0] = multifetch_response_header(sum(map(_size, parts)))
        super().__init__(_joined(parts))


def waiting_fetch_response(fetched: Sequence[Fetched], tells_content: bool) -> bytes | FileSend:
    """The response to a waiting fetch: as a multifetch, each entry with its high watermark.

    A record fetch's `tells_content`: each entry has its content's format as well.
    """
    parts: list[bytes | LogSlice] = [b""]
    size, is_few = 0, True
    for error, messages, high_watermark, content, before in fetched:
        length = 0 if messages is None else _size(messages) + len(before)
        if tells_content:
            header = record_fetch_entry_header(error, high_watermark, content, length)
        else:
            header = waiting_fetch_entry_header(error, high_watermark, length)
        parts.append(header)
        size += len(header) + length
        if messages is not None:
            if before:
                parts.append(before)
            parts.append(messages)
            is_few = is_few and isinstance(messages, bytes)
    parts[0] = waiting_fetch_response_header(size, len(fetched))
    if is_few:
        return b"".join(cast(list[bytes], parts))
    return FileSend(_joined(parts))


def _joined(parts: Iterable[bytes | LogSlice]) -> Iterator[bytes | LogSlice]:
    """Join adjacent bytes: most fetches of a long request bring nothing."""
    together: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            together.append(part)
            continue
        yield b"".join(together)
        together.clear()
        yield part
    yield b"".join(together)


def _size(part: bytes | LogSlice) -> int:
    return len(part) if isinstance(part, bytes) else part.length
