"""Machines, the processes on them, and a process's threads.

A process has a reactor: its events come one after the other, and nothing in them may wait. Its
threads are greenlets: one runs until it must wait (for a lock, an event, a disk, coordination), so
that what can come between two steps of the product is what could come there with real threads, and
the same seed has it come there again.

Who is killed runs no more: not in its reactor, not in a thread, and nothing that it has left behind
reaches a disk, a network or coordination.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet
from twisted.internet.defer import Deferred
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure
from world import BrokenError, World
from zope.interface import implementer

#: When the simulated machines' clocks start, in ms since 1970.
EPOCH_MS = 1_780_000_000_000

#: How long it takes until a thread runs that can, in µs, and how long at times.
_WAKE_US, _LATE_US = 20, 3_000


class KilledError(BaseException):
    """Raised in what a killed process has left behind, so that it ends."""


@implementer(IDelayedCall)
class _Call:
    """What a process wants to be called later."""

    def __init__(self, clock: "Clock", time: float, function: Callable[[], Any]) -> None:
        self._clock = clock
        self._time = time
        self._function: Callable[[], Any] | None = function
        self._error: type[Exception] = AlreadyCalled
        self._happening: Any = None
        self._arm()

    def _arm(self) -> None:
        process = self._clock.process
        self._happening = process.world.at(self._clock.us_until(self._time), process.run, self._due)

    def _due(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()

    def active(self) -> bool:
        return self._function is not None

    def getTime(self) -> float:
        return self._time

    def cancel(self) -> None:
        if self._function is None:
            raise self._error
        self._function, self._error = None, AlreadyCancelled
        self._happening.cancel()

    def reset(self, secondsFromNow: float) -> None:
        self._move(self._clock.seconds() + secondsFromNow)

    def delay(self, secondsLater: float) -> None:
        self._move(self._time + secondsLater)

    def _move(self, time: float) -> None:
        if self._function is None:
            raise self._error
        self._happening.cancel()
        self._time = time
        self._arm()


@implementer(IReactorTime)
class Clock:
    """A process's own time, which may be faster or slower than the world's.

    Attributes:
        wall_ms: what the machine's wall clock is ahead by.
    """

    def __init__(self, process: "Process", rate: float, wall_ms: int) -> None:
        self.process = process
        self.rate = rate
        self.wall_ms = wall_ms
        self._world = process.world

    def seconds(self) -> float:
        return 1000.0 + self._world.now_us * self.rate / 1e6

    def us_until(self, time: float) -> int:
        """How many of the world's µs there are until a time by this clock, or a little more."""
        return max(0, int((time - self.seconds()) * 1e6 / self.rate) + 1)

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall_ms + int(self._world.now_us * self.rate / 1000)

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> _Call:
        return _Call(self, self.seconds() + delay, partial(callable, *args, **kw))

    def getDelayedCalls(self) -> list[IDelayedCall]:
        return []

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None:
        self.process.later(function, *args)


class SimulatedThread:
    """A thread of a process; `Threading.Thread` is the product's view of it."""

    def __init__(self, process: "Process", name: str, function: Callable[[], Any]) -> None:
        self.process = process
        self.name = name
        self.held = 0
        self.is_over = False
        self.on_over: list[Callable[[], None]] = []
        self.greenlet = greenlet(partial(self._run, function), parent=process.world_greenlet)
        self.greenlet.thread = self

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            function()
        finally:
            self.is_over = True
            self.process.threads.pop(self, None)
        for each in self.on_over:
            each()

    def resume(self) -> None:
        """Run until it waits again, as an event of its process."""
        if not self.is_over:
            self.greenlet.switch()

    def pause(self) -> None:
        """Wait until somebody has it resumed; in the thread itself."""
        self.process.world_greenlet.switch()
        if self.process.is_dead:
            raise KilledError

    def sleep(self, us: int) -> None:
        self.resume_later(us)
        self.pause()

    def resume_later(self, us: int) -> Any:
        """Have it go on after so many µs, or when its process does."""
        return self.process.world.at(us, self.process.run_thread, self.resume)

    def end(self) -> None:
        """End it where it is, as its process was killed."""
        try:
            self.greenlet.throw(KilledError)
        except (KilledError, BrokenError, Exception) as error:  # of its last moment
            self.process.world.note(self.name, f"ended with {error!r}")


def current_thread() -> SimulatedThread | None:
    """The thread that runs; None in a reactor."""
    return getattr(getcurrent(), "thread", None)


class Process:
    """One life of a program on a machine.

    Attributes:
        clock: its reactor's clock; `IReactorTime`, and `callFromThread`.
        threads: those that are not over, in the order of their start.
        is_dead: whether it was killed, or has ended.
        is_stopping: whether its reactor may wait for a thread: at the very end it does.
        on_end: called when it is killed, outside of it.
    """

    def __init__(self, machine: "Machine", number: int) -> None:
        self.machine = machine
        self.world = machine.world
        self.number = number
        self.name = f"{machine.name}.{number}"
        self.is_dead = False
        self.is_paused = self.is_starting = self.is_stopping = False
        self.clock = Clock(self, machine.rate, machine.wall_ms)
        self.threads: dict[SimulatedThread, None] = {}
        self.on_end: list[Callable[[], None]] = []
        self.world_greenlet = getcurrent()
        self._backlog: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._unstarted: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._pool = deque[Callable[[], None]]()
        self._pool_free = machine.pool_threads

    def __str__(self) -> str:
        return self.name

    # -- its events -----------------------------------------------------------------------------

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let its reactor do something, as an event; when it is paused or starting, later."""
        if self.is_starting and not self.is_dead:
            self._unstarted.append((function, arguments))
        else:
            self.run_thread(function, *arguments)

    def run_thread(self, function: Callable[..., Any], *arguments: Any) -> None:
        """The same for what is done in one of its threads."""
        if self.is_dead:
            return
        if self.is_paused:
            self._backlog.append((function, arguments))
            return
        world = self.world
        before, world.process = world.process, self
        try:
            function(*arguments)
        except KilledError:
            if not self.is_dead:
                raise
        finally:
            world.process = before

    def at(self, us: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have something happen in it, in so many µs of the world's."""
        return self.world.at(us, self.run, function, *arguments)

    def later(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have something called in its reactor, as from a thread."""
        if not self.is_dead:
            self.at(self.machine.wake_us(), function, *arguments)

    def start_with(self, function: Callable[[], bool]) -> None:
        """Call what may wait, in the main thread: until it returns, no reactor runs.

        Whether one is to run then is what it returns.
        """
        self.is_starting = True

        def start() -> None:
            if not function():
                return
            self.is_starting = False
            unstarted, self._unstarted = self._unstarted, []
            for each, arguments in unstarted:
                self.at(0, each, *arguments)

        self.thread("main", start)

    def pause(self) -> None:
        self.is_paused = True
        self.world.note(self, "paused")

    def resume(self) -> None:
        if self.is_dead or not self.is_paused:
            return
        self.is_paused = False
        self.world.note(self, "goes on")
        backlog, self._backlog = self._backlog, []
        for function, arguments in backlog:
            self.world.at(0, self.run_thread, function, *arguments)

    def kill(self) -> None:
        """Nothing that belongs to it happens any more. Call it outside of the process."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.note(self, "ends")
        self._backlog.clear()
        before, self.world.process = self.world.process, self
        for each in list(self.threads):
            each.end()
        self.world.process = before
        self.threads.clear()
        for call in self.on_end:
            call()
        self.on_end.clear()

    # -- its threads ----------------------------------------------------------------------------

    def thread(self, name: str, function: Callable[[], Any]) -> SimulatedThread:
        made = SimulatedThread(self, f"{self.name}/{name}", function)
        self.threads[made] = None
        made.resume_later(self.machine.wake_us())
        return made

    def in_thread(self, function: Callable[..., Any], *args: Any, **kw: Any) -> "Deferred[Any]":
        """Call a function in a thread of the pool; as `deferToThreadPool`."""
        done: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                result = function(*args, **kw)
            except (KilledError, BrokenError):
                raise
            except BaseException:
                result = Failure()
            self.later(self._settle, done, result)

        self._pool.append(work)
        self._use_pool()
        return done

    def _use_pool(self) -> None:
        if self._pool and self._pool_free:
            self._pool_free -= 1
            self.thread("pool", self._work_off)

    def _work_off(self) -> None:
        while self._pool:
            self._pool.popleft()()
        self._pool_free += 1

    @staticmethod
    def _settle(done: "Deferred[Any]", result: Any) -> None:
        if not done.called:
            done.callback(result)

    def call_then(
        self, then: Callable[[Any], object], function: Callable[..., Any], *args: Any
    ) -> None:
        """As `OwnThread.call_then`, for one whose calls follow each other anyway."""

        def work() -> None:
            try:
                result = function(*args)
            except (KilledError, BrokenError):
                raise
            except BaseException:
                result = Failure()
            self.later(then, result)

        self.thread("own", work)

    def wait(self, us: int, what: str) -> None:
        """Have the thread that runs wait; in a reactor that is what must not be."""
        if self.is_dead:
            raise KilledError
        thread = current_thread()
        if thread is None:
            raise BrokenError(f"{self}: the reactor waits for {what}")
        thread.sleep(us)


class Bell:
    """As `reactors.Bell`: rings are one call until the reactor comes to it."""

    def __init__(self, process: Process, call: Callable[[], None]) -> None:
        self._process = process
        self._call = call
        self._is_rung = self._is_closed = False

    def ring(self) -> None:
        if not self._is_rung and not self._is_closed:
            self._is_rung = True
            self._process.later(self._answer)

    def close(self) -> None:
        self._is_closed = True

    def _answer(self) -> None:
        self._is_rung = False
        if not self._is_closed:
            self._call()


class Machine:
    """A machine with a clock: one process lives on it at a time.

    Attributes:
        rate: how fast its clock goes, where 1.0 is right.
        wall_ms: what its wall clock is ahead by.
        late: how often a thread, or the reactor, is woken late.
        pool_threads: how many threads a process has for `in_thread`.
        process: the one that lives on it, or the last one that did.
    """

    def __init__(
        self, world: World, name: str, rate: float = 1.0, wall_ms: int = 0, late: float = 0.02
    ) -> None:
        self.world = world
        self.name = name
        self.rate = rate
        self.wall_ms = wall_ms
        self.late = late
        self.pool_threads = 4
        self.chance: Random = world.child(f"machine {name}")
        self.process: Process | None = None
        self._lives = 0
        world.at_end.append(self.kill)

    def __str__(self) -> str:
        return self.name

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start(self) -> Process:
        assert not self.is_up, "it runs already"
        self._lives += 1
        self.process = Process(self, self._lives)
        self.world.note(self.process, "begins")
        return self.process

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def wake_us(self) -> int:
        """How long it takes now until somebody runs who can."""
        chance = self.chance.random()
        if chance < self.late:
            return int(_LATE_US * self.chance.random())
        return int(_WAKE_US * chance) + 1
