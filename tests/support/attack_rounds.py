"""Many connections that all send the same request at once; what that does to a broker."""

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fuzz_rounds import log_bytes, open_sockets
from hermes_testkit import DEADLINE_SECONDS, BrokerProcess
from measured_twistd import forget_turns, longest_turn
from witness import Witness
from worst_requests import Kind

__all__ = ["Outcome", "attack"]

_QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1

# A few lines of each kind are logged in any case; they aren't each frame's.
_FIRST_LINES_BYTES = 2000


@dataclass(frozen=True)
class Outcome:
    """What one kind of request did.

    Attributes:
        kind: its name.
        frames: how many the broker took in, as far as the connections could send them.
        turn_ms: the most CPU that one call of the reactor took.
        turn: what that was.
        rss_mib: the most memory that the broker had.
        slowest_ms: the longest that a witness waited.
        log_bytes_per_frame: by how much the log grew, after the first lines.
        finished: whether the broker has done with all of it.
    """

    kind: str
    frames: int
    turn_ms: float
    turn: str
    rss_mib: int
    slowest_ms: int
    log_bytes_per_frame: float
    finished: bool

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.frames} frames, {self.turn_ms} ms in {self.turn or 'no turn'}, "
            f"{self.rss_mib} MiB, served within {self.slowest_ms} ms, "
            f"{self.log_bytes_per_frame} bytes of log for each"
            f"{'' if self.finished else '; still at work'}"
        )


def attack(
    broker: BrokerProcess,
    port: int,
    kind: Kind,
    connections: int,
    witnesses: Sequence[Witness],
    turns: Path,
    seconds: float,
) -> Outcome:
    """Let so many connections send a request of a kind; every other one never reads.

    Args:
        broker: which broker.
        port: which of its ports.
        kind: what they send.
        connections: how many.
        witnesses: who is to be served meanwhile.
        turns: where the reactor's turns are written.
        seconds: the longest that it takes; it ends when nothing has moved for a while.
    """
    logged, sockets = log_bytes(broker), open_sockets(broker)
    forget_turns(turns)
    for each in witnesses:
        each.reset()
    sent_bytes, rss_bytes = _send_all(broker, port, kind, connections, seconds)
    deadline = time.monotonic() + seconds
    while open_sockets(broker) > sockets and time.monotonic() < deadline:
        rss_bytes = max(rss_bytes, broker.memory_bytes())
        time.sleep(_LOOK_SECONDS)
    for each in witnesses:
        assert each.is_served_again(DEADLINE_SECONDS), f"{kind.name}: {each.failure!r}"
    turn_ms, turn = longest_turn(turns)
    grown = log_bytes(broker) - logged - _FIRST_LINES_BYTES
    frames = max(1, round(kind.frames * sent_bytes / max(1, len(kind.data))))
    return Outcome(
        kind.name,
        frames,
        turn_ms,
        turn,
        rss_bytes >> 20,
        round(max(each.waiting_ms() for each in witnesses)),
        round(max(0, grown) / max(frames, connections), 1),
        open_sockets(broker) <= sockets,
    )


def _send_all(
    broker: BrokerProcess, port: int, kind: Kind, connections: int, seconds: float
) -> tuple[int, int]:
    """Send and partly read, until nothing moves; the bytes sent, and the broker's memory."""
    view, sent_bytes, rss_bytes = memoryview(kind.data), 0, broker.memory_bytes()
    now = time.monotonic()
    quiet_seconds = max(_LOOK_SECONDS, min(_QUIET_SECONDS, seconds / 40))
    end, quiet_at, look_at = now + seconds, now + 2 * quiet_seconds, now
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for number in range(connections):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            each.setblocking(False)
            reads = selectors.EVENT_READ if number % 2 else 0
            selector.register(each, selectors.EVENT_WRITE | reads, 0)
        while selector.get_map() and time.monotonic() < min(end, quiet_at):
            for key, events in selector.select(_LOOK_SECONDS):
                moved, sent_bytes = _turn(selector, key, events, view, sent_bytes)
                if moved:
                    quiet_at = time.monotonic() + quiet_seconds
            if time.monotonic() > look_at:
                rss_bytes = max(rss_bytes, broker.memory_bytes())
                look_at = time.monotonic() + _LOOK_SECONDS
        rss_bytes = max(rss_bytes, broker.memory_bytes())
    return sent_bytes, rss_bytes


def _turn(
    selector: selectors.BaseSelector,
    key: selectors.SelectorKey,
    events: int,
    view: memoryview,
    sent_bytes: int,
) -> tuple[bool, int]:
    """Go on with one connection: whether it moved, and the bytes sent by all."""
    connection, position = key.fileobj, key.data
    assert isinstance(connection, socket.socket)
    try:
        if events & selectors.EVENT_READ and not connection.recv(1 << 20):
            selector.unregister(connection)
            return True, sent_bytes
        if events & selectors.EVENT_WRITE:
            sent = connection.send(view[position : position + (1 << 18)])
            position, sent_bytes = position + sent, sent_bytes + sent
    except BlockingIOError:
        return False, sent_bytes
    except OSError:  # refused, as it should be
        selector.unregister(connection)
        return True, sent_bytes
    if position < len(view):
        selector.modify(connection, key.events, position)
    elif key.events & selectors.EVENT_READ:
        selector.modify(connection, selectors.EVENT_READ, position)
    else:
        selector.unregister(connection)
    return True, sent_bytes
