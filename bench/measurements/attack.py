"""Memory under attack: clients that claim, or ask for, far more than they send or read."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from struct import Struct

from bench.support.load import (
    STORED_BYTES,
    TOPIC,
    connect,
    encoded_produces,
    latest_offset,
    produce,
    wait_until_visible,
)
from bench.support.report import Row, bound_row
from bench.support.servers import Address, HermesBroker
from bench.support.settings import Settings
from bench.support.usage import MEGABYTE, PeakMemory, resident_bytes
from hermes.protocol import FetchRequest

__all__ = ["measure"]

_CLAIMANTS = 1_000
_CLAIMED_BYTES = 100 * 1024 * 1024
_SENT_BYTES = 256 * 1024
_CLAIM_TARGET_MEGABYTES = 50

_DEAF = 100
_PIPELINED = 1_000
_FETCH_BYTES = 1_000_000
_DEAF_TARGET_MEGABYTES = 100
_LOG_MESSAGES = 250_000

_SETTLED_SECONDS = 2.0
_PATIENCE_SECONDS = 20.0
_PREFIX = Struct(">ihh")  # int32 size | int16 type | int16 topic length


def measure(settings: Settings) -> list[Row]:
    """Attack a broker in both ways, each a fresh one."""
    return [_claimed_requests(settings), _unread_answers(settings)]


def _claimed_requests(settings: Settings) -> Row:
    """Announce produces of 100 MB, send a part of each, and stall."""
    part = _PREFIX.pack(_CLAIMED_BYTES, 0, len(TOPIC)) + TOPIC.encode() + bytes(4)
    part += Struct(">i").pack(_CLAIMED_BYTES - len(part)) + bytes(_SENT_BYTES)
    growth = _attack(settings, _CLAIMANTS, part, prepare=lambda _: None)
    name = f"{_CLAIMANTS:,} requests of 100 MB claimed"
    note = f"each sends {_SENT_BYTES // 1024} KiB of it, as far as the broker takes it, and stalls"
    return bound_row(name, "MB more", growth, below=_CLAIM_TARGET_MEGABYTES, note=note)


def _unread_answers(settings: Settings) -> Row:
    """Pipeline fetches of 1 MB and never read."""

    def fill(address: Address) -> None:
        produce(address, encoded_produces(50), _LOG_MESSAGES)
        wait_until_visible(address, _LOG_MESSAGES * STORED_BYTES)

    fetches = FetchRequest(TOPIC, 0, 0, _FETCH_BYTES).encode() * _PIPELINED
    growth = _attack(settings, _DEAF, fetches, prepare=fill)
    name = f"{_DEAF} x {_PIPELINED:,} fetches of 1 MB unread"
    return bound_row(name, "MB more", growth, below=_DEAF_TARGET_MEGABYTES)


def _attack(
    settings: Settings, clients: int, data: bytes, *, prepare: Callable[[Address], None]
) -> float:
    """Have many clients send the same bytes, as far as they can without waiting, and read nothing.

    Returns:
        By how many megabytes the broker's resident memory grew at most.
    """
    with settings.workspace() as directory, HermesBroker(directory / "hermes") as broker:
        prepare(broker.address)
        with ExitStack() as open_connections, PeakMemory(broker.pid) as memory:
            senders = {
                open_connections.enter_context(connect(broker.address)): memoryview(data)
                for _ in range(clients)
            }
            for connection in senders:
                connection.setblocking(False)
            _send_until_settled(senders, broker.pid)
            with connect(broker.address) as bystander:
                latest_offset(bystander)  # everybody else is still served
        return memory.growth_bytes / MEGABYTE


def _send_until_settled(senders: dict[socket.socket, memoryview], pid: int) -> None:
    """Send what is taken until, for a while, nothing is and the broker's memory stands still."""
    began = settled = time.monotonic()
    resident = resident_bytes(pid)
    while time.monotonic() < min(settled + _SETTLED_SECONDS, began + _PATIENCE_SECONDS):
        sent = sum(_send_some(senders, connection) for connection in list(senders))
        if sent or resident_bytes(pid) != resident:
            resident = resident_bytes(pid)
            settled = time.monotonic()
        time.sleep(0.02)


def _send_some(senders: dict[socket.socket, memoryview], connection: socket.socket) -> int:
    """Send as much as the kernel takes at once; forget a connection that is closed."""
    try:
        sent = connection.send(senders[connection]) if senders[connection] else 0
    except BlockingIOError:
        return 0
    except OSError:
        del senders[connection]  # the broker may well hang up: that costs it nothing
        return 0
    senders[connection] = senders[connection][sent:]
    return sent
