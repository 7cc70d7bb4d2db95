"""One connection to one broker, for asyncio."""

import asyncio
import struct
from contextlib import suppress
from typing import Final

from hermes.client.arguments import check_address
from hermes.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    RemoteProtocolError,
)
from hermes.forks import FORKED, watch_forks

__all__ = ["AsyncioConnection"]

_SIZE: Final = struct.Struct(">i")
_READ_LIMIT_BYTES: Final = 1024 * 1024


class AsyncioConnection:
    """A lazily made, self-repairing connection; see `hermes.client.BrokerConnection`.

    Args:
        host: the broker's name or address.
        port: its port.
        timeout_seconds: the longest that one call may take, connecting and waiting for other
            calls included.
        connect_timeout_seconds: the longest that connecting may take.
        max_response_bytes: an answer that claims more is refused.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_seconds: float,
        connect_timeout_seconds: float,
        max_response_bytes: int,
    ) -> None:
        check_address(host, port)
        self.timeout_seconds = timeout_seconds
        self._host = host
        self._port = port
        self._connect_timeout_seconds = connect_timeout_seconds
        self._max_response_bytes = max_response_bytes
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._closed = self._is_forked = False
        watch_forks(self)

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self._host}:{self._port}"

    async def call(self, request: bytes, timeout_seconds: float) -> bytes:
        """See `AsyncConnection`. Cancelling it costs the connection, nothing else."""
        if self._is_forked:
            raise ClientError(f"this connection to {self.address} {FORKED}")
        try:
            async with asyncio.timeout(timeout_seconds), self._turn:
                try:
                    return await self._exchange(request)
                except BaseException:
                    self.disconnect()
                    raise
        except TimeoutError as error:
            raise BrokerTimeoutError(
                f"{self.address} did not answer within {timeout_seconds:g} s; "
                "the request may or may not have been carried out"
            ) from error
        except asyncio.IncompleteReadError as error:
            raise BrokerUnavailableError(
                f"{self.address} closed the connection before it had answered"
            ) from error
        except OSError as error:
            raise BrokerUnavailableError(
                f"{self.address}: the connection broke: {error}"
            ) from error

    async def sleep(self, seconds: float) -> None:
        """See `AsyncConnection`."""
        await asyncio.sleep(seconds)

    def disconnect(self) -> None:
        """See `AsyncConnection`."""
        streams, self._streams = self._streams, None
        # In a forked process the event loop shares the parent's selector: nothing may be removed.
        if streams is not None and not self._is_forked:
            streams[1].transport.abort()

    async def close(self) -> None:
        """See `AsyncConnection`; calls under way fail."""
        self._closed = True
        streams = self._streams
        self.disconnect()
        if streams is not None and not self._is_forked:
            with suppress(OSError):  # it is closed all the same
                await streams[1].wait_closed()

    def forked(self) -> None:
        """See `hermes.forks.Forkable`."""
        self._is_forked = True

    async def _exchange(self, request: bytes) -> bytes:
        if self._closed:
            raise ClientError(f"the connection to {self.address} was closed")
        if self._streams is not None and _is_readable(self._streams[0]):
            # The broker closed an idle connection; or there are bytes that nobody asked for, and
            # whatever follows can't be trusted.
            self.disconnect()
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
        if not 0 <= size <= self._max_response_bytes:
            raise RemoteProtocolError(
                f"{self.address} sent an answer of {size} bytes; up to "
                f"{self._max_response_bytes} are allowed. Is this the port of a broker?"
            )
        return await reader.readexactly(size)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                return await asyncio.open_connection(
                    self._host, self._port, limit=_READ_LIMIT_BYTES
                )
        except TimeoutError as error:
            raise BrokerUnavailableError(
                f"{self.address} did not accept a connection within "
                f"{self._connect_timeout_seconds:g} s"
            ) from error
        except (OSError, UnicodeError) as error:
            raise BrokerUnavailableError(
                f"no connection to {self.address}: {error}; is the broker running there?"
            ) from error


def _is_readable(reader: asyncio.StreamReader) -> bool:
    """Whether there are bytes, or the end; takes one, and doesn't wait."""
    reading = reader.read(1)
    try:
        reading.send(None)
    except (StopIteration, OSError):
        return True
    finally:
        reading.close()
    return False
