"""One blocking connection to one broker, and the conversations held over it.

`BrokerConnection` owns the socket, its deadline and its failures. It knows of the wire only that an
answer is preceded by its size. Answers come in request order, so one lock makes a connection safe
to share: it serves one call at a time. `Channel` is the driver of the blocking clients.
"""

import logging
import math
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, ParamSpec, Self, TypeVar, overload

from hermes.client.arguments import broker_address, check_seconds
from hermes.client.authenticating import Authentication, advance, authenticate
from hermes.client.conversations import (
    PROBE_SECONDS,
    BrokerVersions,
    Conversation,
    Exchange,
    Pause,
    Question,
    Refused,
    Step,
)
from hermes.client.endings import RetiredConnection, closed_when_idle
from hermes.config.addresses import BrokerAddress
from hermes.errors import (
    BrokerNotReachedError,
    BrokerNotTrustedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    ConfigError,
    HermesError,
    RemoteProtocolError,
)
from hermes.forks import FORKED, watch_forks
from hermes.keywords import explains_keywords
from hermes.protocol.framing import refused_size
from hermes.security import PLAIN, ClientSecurity
from hermes.security.tls_failures import tls_failure, tls_refusal

DEFAULT_MAX_RESPONSE_BYTES: Final = 128 * 1024 * 1024

_SIZE: Final = struct.Struct(">i")
_LEAST_SECONDS: Final = 0.001
# An answer's size prefix is only a claim: memory is taken as its bytes arrive, from this size on.
_FIRST_READ_BYTES: Final = 1024 * 1024
# Memory up to this size is kept for the next answer. What is taken and given back for each costs
# more than filling it: allocators of threads return it to the system every time.
_KEPT_BYTES: Final = 4 * 1024 * 1024

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = logging.getLogger(__name__)


@explains_keywords
class BrokerConnection:
    """A connection that connects on first use and reconnects after failures. Threads may share it.

    A failed call leaves no socket behind; the next one connects again. `close` is final.

        with BrokerConnection("localhost", 9092) as connection:
            body = connection.call(MetadataRequest(None).encode())

    Args:
        host: the broker's name or address, or both as in `localhost:9092`. Looking a name up is not
            bounded by the timeouts: the operating system's resolver has its own.
        port: 1 to 65535; None for the one in `host`, or else 9092.
        timeout_seconds: the longest that one call may take, connecting and waiting for other
            threads' calls included; above 0.
        connect_timeout_seconds: the longest that connecting may take, TLS and SCRAM included;
            above 0.
        max_response_bytes: a response that declares more is rejected as malformed.
        hold_off_seconds: after connecting has run into its timeout, calls fail at once for so
            long, rather than each wait for it again; 0 or more. A refused connection costs no
            time, and so is always tried again.
        security: whom to trust, and who this is.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        hold_off_seconds: float = 0.0,
        security: ClientSecurity = PLAIN,
        authenticate: Callable[[ClientSecurity, str], Authentication[None]] = authenticate,
    ) -> None:
        address = broker_address(host, port)
        check_seconds("timeout_seconds", timeout_seconds)
        check_seconds("connect_timeout_seconds", connect_timeout_seconds)
        self.host, self.port = address
        self.timeout_seconds = timeout_seconds
        self.connect_timeout_seconds = connect_timeout_seconds
        self.max_response_bytes = max_response_bytes
        self.hold_off_seconds = hold_off_seconds
        self.security = security
        self._authentication = authenticate
        # One that a signal's handler, which interrupts the thread that holds it, can close.
        self._lock = threading.RLock()
        self._is_in_turn = False
        self._socket: socket.socket | None = None
        self._poll: Any = select.poll()
        if security.uses_tls:
            from hermes.client.tls import TlsPoll  # and with it `ssl`, for those only who need it

            self._poll = TlsPoll()
        self._buffer = bytearray()
        self._closed = False
        self._held_off_until = -math.inf
        # Whether requests without an answer went out since the last answer: if the broker closes
        # now, nobody knows which of them it had read.
        self._unanswered = False
        #: Whether a connection has ended so. Stays until somebody takes it back.
        self.may_have_lost = False
        # Whether a request that changes something waits for its answer now; and the connection on
        # which one got none in time.
        self._is_changing = False
        self._retired: RetiredConnection | None = None
        self._is_forked = False
        watch_forks(self)

    @property
    def address(self) -> str:
        return str(BrokerAddress(self.host, self.port))

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    @property
    def has_unanswered(self) -> bool:
        """Whether requests were sent that no later answer proves to have been read."""
        return self._unanswered

    @overload
    def call(
        self, request: bytes, *, timeout_seconds: float | None = None, changes: bool = False
    ) -> bytes: ...

    @overload
    def call(
        self,
        request: bytes,
        decode: Callable[[memoryview], _R],
        *,
        timeout_seconds: float | None = None,
        changes: bool = False,
    ) -> _R: ...

    def call(
        self,
        request: bytes,
        decode: Callable[[memoryview], Any] = bytes,
        *,
        timeout_seconds: float | None = None,
        changes: bool = False,
    ) -> Any:
        """Send a request and wait for its response.

        Args:
            request: a whole encoded request, size prefix included.
            decode: makes the call's result of the body, without its size prefix, of which the
                result must hold no view: the memory is used again.
            timeout_seconds: overrides the connection's timeout for this call; above 0.
            changes: whether it changes something on the broker, so that nothing else may overtake
                it: when its answer doesn't come in time, the next call waits until the broker has
                closed the old connection, and so has dealt with what was sent there; see
                `RetiredConnection` for how long.

        Returns:
            What `decode` made; by default a copy of the body.

        Raises:
            BrokerNotReachedError: no connection, or an earlier request that changes something is
                still open on it: nothing was sent.
            BrokerUnavailableError: the connection broke; the request may have been carried out, so
                repeat it only if that does no harm.
            BrokerTimeoutError: no answer in time; as above.
            RemoteProtocolError: the response is not Kafka's; is this the right port?
            ClientError: the connection was closed by `close`, or this is a forked process.
            Exception: what `decode` raises. Only a RemoteProtocolError costs the connection.
        """
        with self._turn(timeout_seconds) as deadline:
            self._transmit(request, deadline)
            self._is_changing = changes
            answer, refused = self._receive(decode, deadline)
        if refused is not None:
            raise refused
        return answer

    def send(self, request: bytes) -> None:
        """Send a request that has no answer (a produce of 0.7).

        The broker may have closed, or may close a moment later: both are looked for, but only an
        answer to a later request on this connection proves that this one was read. Raises as `call`
        does; earlier unanswered requests may be lost as well.
        """
        with self._turn(None) as deadline:
            self._transmit(request, deadline)
            if self._poll.poll(0):
                raise BrokerUnavailableError(
                    f"{self.address} closed the connection upon a request; it may be lost "
                    "(a 0.7 broker closes on messages it refuses: its log says why)"
                )
            self._unanswered = True

    def disconnect(self) -> None:
        """Drop the socket, if any; the next call reconnects. For a peer that sends garbage."""
        with self._lock:
            self._drop()

    def close(self) -> None:
        """Close for good; a call in progress fails. Idempotent.

        Any thread may call it, and the handler of a signal.
        """
        self._closed = True
        current, retired = self._socket, self._retired
        self._say_goodbye()
        # Wakes the thread that holds the lock; only that thread frees the sockets.
        if current is not None:
            with suppress(OSError):
                current.shutdown(socket.SHUT_RDWR)
        if retired is not None:
            retired.wake()
        with self._lock:
            self._drop()
            self._drop_retired()

    def _say_goodbye(self) -> None:
        """By TLS, an end is announced, unless a call is under way."""
        tls: Any = self._socket
        if self.security.uses_tls and tls is not None and self._lock.acquire(blocking=False):
            try:
                if not self._is_in_turn:
                    tls.say_goodbye()
            finally:
                self._lock.release()

    def forked(self) -> None:
        self._lock, self._is_in_turn = threading.RLock(), False
        self._is_forked = True
        self._drop()
        retired, self._retired = self._retired, None
        if retired is not None:
            retired.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _turn(self, timeout_seconds: float | None) -> Iterator[float]:
        """Hold the connection for one call; whatever fails in it costs the socket."""
        if self._is_forked:
            raise ClientError(f"this connection to {self.address} {FORKED}")
        timeout = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=timeout):
            raise BrokerTimeoutError(
                f"{self.address}: other threads' calls took all of the {timeout:g} s"
            )
        if self._is_in_turn:
            self._lock.release()
            raise ClientError(f"{self.address}: this thread's own call is in the middle of another")
        try:
            self._is_in_turn = True
            yield deadline
        except TimeoutError as error:
            self._retire()
            raise BrokerTimeoutError(
                f"{self.address} did not answer within {timeout:g} s; "
                "the request may or may not have been carried out"
            ) from error
        except OSError as error:
            self._drop()
            raise self._why_broken(error) from error
        except HermesError:
            self._drop()
            raise
        except BaseException:  # an interrupt: as if the time were over
            self._retire()
            raise
        finally:
            self._is_in_turn = False
            self._lock.release()

    def _closed_error(self) -> ClientError:
        return ClientError(f"the connection to {self.address} was closed")

    def _transmit(self, request: bytes, deadline: float) -> None:
        if self._socket is not None and self._poll.poll(0):
            self._drop_stale()
        if self._socket is None:
            self._connect(deadline)
        self._send_all(request, deadline)

    def _send_all(self, request: bytes, deadline: float) -> None:
        connected = self._socket
        if connected is None:
            raise self._closed_error()
        connected.settimeout(_remaining(deadline))
        connected.sendall(request)

    def _drop_stale(self) -> None:
        # Between calls nothing may be readable: it is the broker's end of file, or bytes that
        # nobody asked for.
        may_be_lost = self._unanswered and not self._was_closed_when_idle()
        self._unanswered = may_be_lost
        self._drop()
        if may_be_lost:
            raise BrokerUnavailableError(
                f"{self.address} closed the connection since the last request; "
                "requests without an answer that were sent before may be lost"
            )
        _log.debug("%s closed the idle connection; connecting again", self.address)

    def _was_closed_when_idle(self) -> bool:
        assert self._socket is not None
        at_end = self._poll.at_end if self.security.uses_tls else None
        return closed_when_idle(self._socket, self.timeout_seconds, at_end)

    def _why_broken(self, error: OSError) -> BrokerUnavailableError:
        # With TLS 1.3, what a broker makes of our certificate comes after its handshake.
        refusal = tls_refusal(error, self.host, self.port, self.security)
        return refusal or BrokerUnavailableError(
            f"{self.address}: the connection broke: {error}; "
            "the request may or may not have been carried out"
        )

    def _retire(self) -> None:
        current = self._socket
        if current is None or not self._is_changing or self._closed:
            self._drop()
            return
        self._socket = None
        self._unanswered = self._is_changing = False
        self._poll.unregister(current)
        self._retired = RetiredConnection(current, self.timeout_seconds)

    def _await_end(self, deadline: float) -> None:
        assert self._retired is not None
        if not self._retired.wait(deadline):
            raise BrokerNotReachedError(
                f"{self.address} has not dealt with an earlier request yet, whose answer did not "
                "come in time; nothing was sent after it"
            )
        self._drop_retired()

    def _drop_retired(self) -> None:
        retired, self._retired = self._retired, None
        if retired is not None:
            retired.abort()

    def _connect(self, deadline: float) -> None:
        if self._retired is not None and not self._closed:
            self._await_end(deadline)
        if self._closed:
            raise self._closed_error()
        if time.monotonic() < self._held_off_until:
            raise BrokerNotReachedError(
                f"{self.address} did not accept a connection a moment ago; "
                f"it is tried again {self.hold_off_seconds:g} s after that"
            )
        timeout = min(self.connect_timeout_seconds, _remaining(deadline))
        until = time.monotonic() + timeout
        try:
            connected = _connected(self.host, self.port, timeout)
        except TimeoutError as error:
            self._hold_off(timeout)
            raise BrokerNotReachedError(
                f"{self.address} did not accept a connection within {timeout:g} s"
            ) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise BrokerNotReachedError(
                f"no connection to {self.address}: {error}; is the broker running there?"
            ) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.security.uses_tls:
            connected = self._wrap(connected)
        self._socket = connected
        self._poll.register(connected, select.POLLIN)
        self._unanswered = False
        if self._closed:  # `close` came while connecting and saw no socket
            raise self._closed_error()
        if not self.security.is_plain:
            self._introduce(until, timeout)

    def _hold_off(self, timeout: float) -> None:
        if timeout == self.connect_timeout_seconds:  # not cut short by a call's own deadline
            self._held_off_until = time.monotonic() + self.hold_off_seconds

    def _wrap(self, connected: socket.socket) -> socket.socket:
        from hermes.client.tls import wrap  # and with it `ssl`, for those only who need it

        try:
            return wrap(connected, self.host, self.security)
        except ConfigError:
            connected.close()
            raise
        except (OSError, ValueError) as error:  # they have closed it
            raise tls_failure(error, self.host, self.port, self.security) from error

    def _introduce(self, deadline: float, timeout: float) -> None:
        """Agree on TLS, and say who this is. The socket is there, so that `close` can end it."""
        assert self._socket is not None
        try:
            if self.security.uses_tls:
                tls: Any = self._socket
                tls.settimeout(_remaining(deadline))
                tls.do_handshake()
            if self.security.user is not None:
                self._authenticate(deadline)
        except TimeoutError as error:
            self._hold_off(timeout)
            raise BrokerNotReachedError(
                f"{self.address} accepted a connection, but did not get through TLS and "
                f"authentication within {timeout:g} s"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: `close` was faster
            raise tls_failure(error, self.host, self.port, self.security) from error

    def _authenticate(self, deadline: float) -> None:
        talk = self._authentication(self.security, self.address)
        step = next(talk, None)
        while step is not None:
            outcome: bytes | HermesError
            try:
                self._send_all(step.request, deadline)
                outcome, _ = self._receive(bytes, deadline)
            except BrokerUnavailableError as error:
                outcome = error
            step = advance(talk, step, outcome)

    def _receive(
        self, decode: Callable[[memoryview], Any], deadline: float
    ) -> tuple[Any, Exception | None]:
        """What was made of an answer, or what `decode` raised at no socket's cost."""
        size = self._receive_answer(deadline)
        self._unanswered = self._is_changing = False
        try:
            with memoryview(self._buffer) as whole, whole[:size] as body:
                return decode(body), None
        except RemoteProtocolError:
            raise
        except Exception as error:
            return None, error
        finally:
            if len(self._buffer) > _KEPT_BYTES:
                self._buffer = bytearray()

    def _receive_answer(self, deadline: float) -> int:
        self._receive_exactly(_SIZE.size, deadline)
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 <= size <= self.max_response_bytes:
            raise refused_size(self.address, size, self.max_response_bytes)
        self._receive_exactly(size, deadline)
        return int(size)

    def _receive_exactly(self, size: int, deadline: float) -> None:
        connected, buffer = self._socket, self._buffer
        if connected is None:
            raise self._closed_error()
        received = 0
        while received < size:
            if received == len(buffer):
                more = bytes(min(size - received, max(received, _FIRST_READ_BYTES)))
                try:
                    buffer.extend(more)
                except BufferError:  # a kept error's traceback still has a view of it
                    buffer = self._buffer = buffer + more
            connected.settimeout(_remaining(deadline))
            with memoryview(buffer) as whole, whole[received:size] as free:
                count = connected.recv_into(free)
            if count == 0:
                raise BrokerUnavailableError(
                    f"{self.address} closed the connection before it had answered; "
                    "the request may or may not have been carried out"
                )
            received += count

    def _drop(self) -> None:
        dropped, self._socket = self._socket, None
        self.may_have_lost = self.may_have_lost or self._unanswered
        self._unanswered = self._is_changing = False
        if dropped is not None:
            self._poll.unregister(dropped)
            dropped.close()


class Channel:
    """A connection, what the broker at its other end supports, and conversations over it.

    Threads may share it; their conversations then alternate step by step.

    Args:
        connection: the channel's own from now on; closed with it.
        supports_hermes_requests: whether the broker answers Hermes' own requests; None to find
            out when that first matters.
    """

    def __init__(
        self, connection: BrokerConnection, *, supports_hermes_requests: bool | None = None
    ) -> None:
        self.connection = connection
        self.refused = Refused(connection.address, connection.security)
        self._closed = threading.Event()
        self.broker_versions = BrokerVersions(supports_hermes_requests)

    def versions(self) -> Mapping[int, int]:
        """The request types that the broker supports; requested once. Raises ClientError."""
        return self.run(self.broker_versions.learn())

    def require(self, request_type: int, purpose: str) -> None:
        """Refuse what the broker can't do, before asking it; see `BrokerVersions`."""
        self.run(self.broker_versions.require(request_type, purpose))

    def ask(self, question: Question[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Require what a conversation needs, then hold it."""
        self.require(question.request_type, question.purpose)
        return self.run(question(*args, **kwargs))

    def run(self, conversation: Conversation[_R], *, timeout_seconds: float | None = None) -> _R:
        """Hold a conversation and return what it returns, or raise what it raises.

        `timeout_seconds` bounds each of its requests; None for the connection's own.
        """
        step: Step | None = None
        try:
            step = next(conversation)
            while True:
                try:
                    answer = self._perform(step, timeout_seconds)
                except HermesError as error:
                    step = conversation.throw(error)
                else:
                    step = conversation.send(answer)
        except StopIteration as end:
            result: _R = end.value
            return result
        except HermesError as error:
            explained = self._stranger(step, error) or self.refused.explain(error)
            if explained is error:
                raise
            raise explained from None
        finally:
            conversation.close()

    def close(self) -> None:
        """Close the connection for good and end pauses. Idempotent."""
        self._closed.set()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _perform(self, step: Step, timeout: float | None) -> Any:
        if isinstance(step, Pause):
            if self._closed.wait(step.seconds):
                raise ClientError(f"the connection to {self.connection.address} was closed")
            return None
        try:
            return self._exchange(step, timeout)
        except BrokerUnavailableError as error:
            if not step.repeatable or isinstance(error, BrokerNotTrustedError):
                raise
            return self._exchange(step, timeout)

    def _exchange(self, step: Exchange[Any], timeout: float | None) -> Any:
        timeout = (timeout or self.connection.timeout_seconds) + step.extra_seconds
        answer = self.connection.call(
            step.request, step.decode, timeout_seconds=timeout, changes=step.changes
        )
        self.broker_versions.has_answered = True
        return answer

    def _stranger(self, step: Step | None, error: HermesError) -> HermesError | None:
        probes = self.broker_versions.who_is_it(self.connection.address, step, error)
        timeout = min(self.connection.timeout_seconds, PROBE_SECONDS)
        for probe in probes:
            try:
                self.connection.call(probe.request, probe.decode, timeout_seconds=timeout)
            except RemoteProtocolError as found:
                return found
            except HermesError:
                continue
        if probes:
            self.connection.disconnect()
        return None


def _connected(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to the first address of a host that accepts; they share the time."""
    found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for count, (*_, address) in zip(range(len(found), 0, -1), found, strict=True):
        began = time.monotonic()
        try:
            return socket.create_connection(address[:2], max(seconds, _LEAST_SECONDS) / count)
        except OSError:
            if count == 1:
                raise
        seconds -= time.monotonic() - began
    raise OSError("it has no address")


def _remaining(deadline: float) -> float:
    """The seconds left; TimeoutError when there are none (a timeout of 0 means non-blocking)."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
