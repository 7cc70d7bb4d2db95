"""TLS handshakes, limited in time and number.

A protocol behind TLS is made when the handshake is over, with a peer that is authenticated: until
then a `_Handshake` takes its place, and no application's limit or table knows of the connection. So
thousands of peers that begin a handshake and don't go on only fill this listener's handshakes, and
of these the oldest ends when another begins: whoever goes on at once gets through.
"""

from collections import Counter
from typing import Any, Final

from twisted.internet.interfaces import IAddress, IHandshakeListener, IProtocolFactory
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from hermes.limited_log import LimitedLog
from hermes.listening.handshake_failures import failure_text
from hermes.listening.peers import peer_principal, peer_text
from hermes.listening.tls import ServerTls
from hermes.listening.transports import TlsTransport
from hermes.logs import ModuleLogger

__all__ = ["MAX_HANDSHAKES", "Handshakes", "TlsFactory"]

#: How long one may take.
HANDSHAKE_SECONDS: Final = 10.0

#: How many may be under way on one listener.
MAX_HANDSHAKES: Final = 256

#: How one ends; `left`: its peer did, or the port was closed.
OUTCOMES: Final = ("completed", "failed", "left", "timed_out", "crowded_out")

_DAY_SECONDS: Final = 86_400.0


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS before the protocols of another factory.

    Args:
        factory: makes the protocol of each connection whose handshake is over; None closes it.
        demands_principal: whether a client whose certificate names nobody is refused.

    Attributes:
        handshakes: pending ones, and how the others ended.
    """

    protocol = TlsTransport

    def __init__(
        self, tls: ServerTls, factory: IProtocolFactory, reactor: Any, demands_principal: bool
    ) -> None:
        self.handshakes = Handshakes(tls, factory, reactor, demands_principal)
        self._tls = tls
        self.reactor = reactor
        self._daily: Any = None
        super().__init__(tls, False, self.handshakes, clock=reactor)

    def logPrefix(self) -> str:
        return f"{type(self.handshakes.factory).__name__} (TLS)"

    def startFactory(self) -> None:
        self._daily = self.reactor.callLater(_DAY_SECONDS, self._look)

    def stopFactory(self) -> None:
        """The port is closed: nobody would serve those whose handshake is pending."""
        if self._daily is not None and self._daily.active():
            self._daily.cancel()
        self.handshakes.abort_all()

    def _look(self) -> None:
        self._daily = self.reactor.callLater(_DAY_SECONDS, self._look)
        self._tls.refresh()
        self._tls.warn_of_end()


class Handshakes(Factory):
    """The handshakes of one listener. Lives in the reactor's thread.

    `outcomes`: how many have ended, by how: one of `OUTCOMES`.
    """

    noisy = False
    _log = ModuleLogger()

    def __init__(
        self, tls: ServerTls, factory: IProtocolFactory, clock: Any, demands_principal: bool
    ) -> None:
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.tls = tls
        self.factory = factory
        self.demands_principal = demands_principal
        self.lines = LimitedLog(self._log, clock.seconds)
        self._clock = clock
        self._began: dict[_Handshake, float] = {}  # the oldest first
        self._timer: Any = None

    def doStart(self) -> None:
        self.factory.doStart()
        super().doStart()  # type: ignore[no-untyped-call]

    def doStop(self) -> None:
        super().doStop()  # type: ignore[no-untyped-call]
        self.factory.doStop()

    def buildProtocol(self, addr: IAddress | None) -> "_Handshake":
        return _Handshake(self, addr)

    def __len__(self) -> int:
        return len(self._began)

    def is_under_way(self, handshake: "_Handshake") -> bool:
        return handshake in self._began

    def begin(self, handshake: "_Handshake") -> None:
        """Add one; if there are too many, the oldest ends."""
        if len(self._began) >= MAX_HANDSHAKES:
            self._cut(next(iter(self._began)), "crowded_out", "others came, and it did not go on")
        self._began[handshake] = self._clock.seconds()
        if self._timer is None:
            self._timer = self._clock.callLater(HANDSHAKE_SECONDS, self._sweep)

    def end(self, handshake: "_Handshake", outcome: str) -> None:
        if self._began.pop(handshake, None) is not None:
            self.outcomes[outcome] += 1

    def abort_all(self) -> None:
        while self._began:
            self._cut(next(iter(self._began)), "left", "the listener closes")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._began:
            oldest, began = next(iter(self._began.items()))
            left = began + HANDSHAKE_SECONDS - now
            if left > 0:
                self._timer = self._clock.callLater(left, self._sweep)
                return
            self._cut(oldest, "timed_out", f"it took longer than {HANDSHAKE_SECONDS:.0f} s")

    def _cut(self, handshake: "_Handshake", outcome: str, reason: str) -> None:
        self.end(handshake, outcome)
        if outcome != "left":
            self.report(handshake.address, reason)
        transport: Any = handshake.transport
        transport.abortConnection()

    def report(self, address: Any, reason: str) -> None:
        self.lines.warn(
            "handshake",
            "no TLS with {client}: {reason}",
            client=peer_text(address),
            reason=reason,
        )


@implementer(IHandshakeListener)
class _Handshake(Protocol):
    """Takes the place of the application's protocol until the handshake is over."""

    def __init__(self, handshakes: Handshakes, address: Any) -> None:
        self._handshakes = handshakes
        self.address = address

    transport: Any

    def connectionMade(self) -> None:
        self._handshakes.begin(self)

    def handshakeCompleted(self) -> None:
        handshakes, tls = self._handshakes, self.transport
        if handshakes.demands_principal:
            try:
                peer_principal(tls, handshakes.tls.config)
            except ValueError as error:
                handshakes.end(self, "failed")
                handshakes.report(self.address, str(error))
                tls.abortConnection()
                return
        handshakes.end(self, "completed")
        protocol = handshakes.factory.buildProtocol(self.address)
        if protocol is None:
            tls.abortConnection()
            return
        tls.use(protocol)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        tls, handshakes = self.transport, self._handshakes
        if not handshakes.is_under_way(self):
            return  # it was ended here, or the application did not want it
        text = failure_text(reason.value, handshakes.tls.config, tls.verification_error)
        handshakes.end(self, "failed" if text else "left")
        if text:
            handshakes.report(self.address, text)
