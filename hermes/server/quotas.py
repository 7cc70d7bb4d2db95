"""Quotas: what each principal may do per second; beyond that it is throttled, and loses nothing.

What a connection has received, taken and answered is charged after the fact. While it owes
something it takes no further request, and its socket isn't read; what it has been asked is
answered. All connections of a principal share its rates fairly (`sharing`), and who leaves with a
debt leaves it to the principal's next connection. Beyond `connections`, further ones are closed.

Knows connections as `Throttle`s. Lives in the reactor's thread.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from hermes.config.broker import BrokerConfig
from hermes.config.quotas import Quota
from hermes.quoting import quoted
from hermes.security import INTERNAL
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection
from hermes.server.settings import Settings
from hermes.server.sharing import SharedRate

#: The limits that are rates.
_RATES: Final = ("bytes_in", "bytes_out", "requests")

#: Of so many principals usage is kept, and metrics; of more only while they use anything.
_MOST_KEPT: Final = 1000

#: Where the metrics of more principals are counted.
_OTHERS: Final = "others"


class Throttle:
    """What one connection uses; `is_delayed` until `resume` is called."""

    __slots__ = ("_answered_bytes", "_received_bytes", "_requests", "is_delayed", "resume", "usage")

    def __init__(
        self, usage: "_PrincipalUsage", resume: Callable[[], None], answered_bytes: int
    ) -> None:
        self.usage: _PrincipalUsage | None = usage
        self.resume = resume
        self.is_delayed = False
        self._received_bytes = self._requests = 0
        self._answered_bytes = answered_bytes

    def received(self, count: int) -> None:
        self._received_bytes += count

    def took(self, count: int) -> None:
        self._requests += count

    def charge(self, answered_bytes: int) -> None:
        """Charge what was used since the last call.

        `answered_bytes` is the total of the connection's responses so far, not a difference.
        """
        used = (self._received_bytes, answered_bytes - self._answered_bytes, self._requests)
        if self.usage is not None and any(used):
            self._received_bytes = self._requests = 0
            self._answered_bytes = answered_bytes
            self.usage.charge(self, used)

    def leave(self) -> None:
        """The connection is lost; this object still carries what it owes."""
        usage, self.usage = self.usage, None
        self.is_delayed, self.resume = False, _nobody
        if usage is not None:
            usage.leave(self)


def _nobody() -> None:
    """Nobody waits."""


class _PrincipalUsage:
    def __init__(self, principal: str, quota: Quota, clock: IReactorTime, quotas: "Quotas") -> None:
        self._principal = principal
        self._clock = clock
        self._quotas = quotas
        self.quota = quota
        self.connections: set[Throttle] = set()
        self._lost: list[Throttle] = []  # connections that have left debts
        self._rates: dict[str, SharedRate] = {}
        self._ready: list[Throttle] = []  # connections that owe nothing any longer
        self._delayed_since: dict[tuple[str, Throttle], float] = {}
        self._timer: Any = None
        self.use(quota)

    def use(self, quota: Quota) -> None:
        self.quota = quota
        now = self._clock.seconds()
        for name in _RATES:
            per_second: int | None = getattr(quota, name)
            rate = self._rates.get(name)
            if rate is not None:
                self._settle(name, rate, now)
            if per_second is None:
                if self._rates.pop(name, None) is not None:
                    for about, throttle in list(self._delayed_since):
                        if about == name:
                            self._paid(name, throttle, now)
            elif rate is None:
                self._rates[name] = SharedRate(per_second, now)
            else:
                rate.change(per_second)
        self._wake()

    def join(self, resume: Callable[[], None], answered_bytes: int) -> Throttle:
        """Add a connection; it inherits the debt of a lost one."""
        throttle = Throttle(self, resume, answered_bytes)
        self.connections.add(throttle)
        if self._lost:
            lost, now = self._lost.pop(), self._clock.seconds()
            for name, rate in self._rates.items():
                if rate.owes(lost):
                    rate.hand_over(lost, throttle)
                    since = self._delayed_since.pop((name, lost), now)
                    self._delayed_since[name, throttle] = since
                    throttle.is_delayed = True
        return throttle

    def leave(self, throttle: Throttle) -> None:
        self.connections.discard(throttle)
        if any(rate.owes(throttle) for rate in self._rates.values()):
            self._lost.append(throttle)

    def charge(self, throttle: Throttle, used: tuple[int, int, int]) -> None:
        now = self._clock.seconds()
        for name, amount in zip(_RATES, used, strict=True):
            rate = self._rates.get(name)
            if rate is None or not amount:
                continue
            self._settle(name, rate, now)
            if rate.use(throttle, amount):
                throttle.is_delayed = True
                if (name, throttle) not in self._delayed_since:
                    self._delayed_since[name, throttle] = now
                    self._quotas.count(self._principal, name, 1, 0.0)
        if self._delayed_since:
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether it can be dropped: nobody is connected, nothing is owed."""
        now = self._clock.seconds()
        for name, rate in self._rates.items():
            self._settle(name, rate, now)
        return not self.connections and all(rate.is_unused for rate in self._rates.values())

    def end(self) -> None:
        self.use(Quota())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for throttle in self.connections:
            throttle.usage = None
            if throttle.is_delayed:
                throttle.is_delayed = False
                self._clock.callLater(0, throttle.resume)

    def _settle(self, name: str, rate: SharedRate, now: float) -> None:
        for throttle in rate.settle(now):
            self._paid(name, throttle, now)

    def _paid(self, name: str, throttle: Any, now: float) -> None:
        since = self._delayed_since.pop((name, throttle), now)
        self._quotas.count(self._principal, name, 0, now - since)
        if any(rate.owes(throttle) for rate in self._rates.values()):
            return
        if throttle in self.connections:
            self._ready.append(throttle)
        elif throttle in self._lost:
            self._lost.remove(throttle)

    def _wake(self) -> None:
        """Schedule `_resume` for when the next connection owes nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [at for rate in self._rates.values() if (at := rate.due()) is not None]
        if self._ready or due:
            delay = 0.0 if self._ready else max(0.0, min(due) - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._resume)

    def _resume(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        for name, rate in self._rates.items():
            self._settle(name, rate, now)
        ready, self._ready = self._ready, []
        for throttle in ready:
            if throttle.usage is self and not self._owes(throttle):
                throttle.is_delayed = False
                throttle.resume()
        self._wake()

    def _owes(self, throttle: Throttle) -> bool:
        return any(rate.owes(throttle) for rate in self._rates.values())


def _quotas_of(config: BrokerConfig) -> tuple[Mapping[str, Quota], Mapping[str, Quota]]:
    return config.quotas, config.requested.quotas


class Quotas:
    """The quotas of a broker.

    Attributes:
        delays: how often connections were delayed, by principal and limit.
        delayed_seconds: likewise, for how long in all.
        refused: connections closed for being too many, by principal.
    """

    def __init__(self, settings: Settings, clock: IReactorTime) -> None:
        self._settings = settings
        self._clock = clock
        self._used = _quotas_of(settings.config)
        self._usages: dict[str, _PrincipalUsage] = {}
        self._labels: set[str] = set()
        self.delays: dict[tuple[str, str], int] = {}
        self.delayed_seconds: dict[tuple[str, str], float] = {}
        self.refused: dict[str, int] = {}

    def refusal(self, client: Client) -> CloseConnection | None:
        """Count and return why a new connection is closed; None if it may stay."""
        quota = self._of(client.principal)
        if quota is None or quota.connections is None:
            return None
        usage = self._usages.get(client.principal)
        if usage is None or len(usage.connections) < quota.connections:
            return None
        principal = self._label(client.principal)
        self.refused[principal] = self.refused.get(principal, 0) + 1
        return CloseConnection(
            f"{quoted(client.principal)} has {quota.connections} connections open, as many as "
            "its quota allows",
            "connection",
            "quota",
        )

    def join(
        self, client: Client, resume: Callable[[], None], answered_bytes: int = 0
    ) -> Throttle | None:
        """Count a connection among its principal's; None if no quota applies.

        Args:
            resume: called when it needn't wait any longer.
            answered_bytes: what was answered before, which no quota is about.
        """
        quota = self._of(client.principal)
        if quota is None:
            return None
        usage = self._usages.get(client.principal)
        if usage is None:
            if len(self._usages) >= _MOST_KEPT:
                self._usages = {n: each for n, each in self._usages.items() if not each.is_over}
            usage = _PrincipalUsage(client.principal, quota, self._clock, self)
            self._usages[client.principal] = usage
        return usage.join(resume, answered_bytes)

    def reload(self) -> bool:
        """Use the settings as they are now; whether connections should join anew."""
        used = _quotas_of(self._settings.config)
        if used == self._used:
            return False
        self._used = used
        for principal, usage in list(self._usages.items()):
            quota = self._of(principal)
            if quota is None:
                del self._usages[principal]
                usage.end()
            else:
                usage.use(quota)
        return True

    def count(self, principal: str, name: str, times: int, seconds: float) -> None:
        key = (self._label(principal), name)
        self.delays[key] = self.delays.get(key, 0) + times
        self.delayed_seconds[key] = self.delayed_seconds.get(key, 0.0) + seconds

    def _of(self, principal: str) -> Quota | None:
        if not any(self._used) or principal == INTERNAL:
            return None
        return self._settings.config.quota(principal)

    def _label(self, principal: str) -> str:
        if principal not in self._labels:
            if len(self._labels) >= _MOST_KEPT:
                return _OTHERS
            self._labels.add(principal)
        return principal
