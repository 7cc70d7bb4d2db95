"""The life of a mirror process, from its settings to its end.

A mirror ends by SIGTERM or SIGINT, or, if a broker runs it, when the broker closes its standard
input, as the end of the broker's process does, too. SIGHUP lets it read its file again.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from queue import SimpleQueue
from typing import BinaryIO, Final, TypeAlias

from hermes.config.exposure import warnings_of
from hermes.config.mirror import MirrorConfig
from hermes.errors import ConfigError, HermesError
from hermes.mirror.loop_guard import LoopGuard, Origins
from hermes.mirror.mirror_counter import MirrorCounter
from hermes.mirror.pipeline import Mirror
from hermes.mirror.serving import mount_mirror
from hermes.mirror.status import StatusPublisher
from hermes.web import WebThread

_log = logging.getLogger(__name__)

#: How long a mirror without its broker has to stop, before it is ended.
_ORPHAN_SECONDS: Final = 30.0


class _Order(Enum):
    END = auto()
    RELOAD = auto()


#: A handler of signals may put something into it at any moment. An event would be a trap: the
#: handler would wait for the lock that the main thread, which it interrupts, may hold.
_Orders: TypeAlias = "SimpleQueue[_Order]"


class MirrorRun:
    def __init__(self, config: MirrorConfig) -> None:
        self.config = config
        self._counter = MirrorCounter(config) if config.audit else None
        self._source_ids = dict.fromkeys((each.name for each in config.sources), "")
        self.mirror = Mirror(config, make_guard=self._make_guard, counter=self._counter)
        self.status = StatusPublisher(self.mirror, config.name, self._source_ids)
        self.web: WebThread | None = None

    def start(self) -> None:
        """Begin. Raises HermesError: the HTTP port can't be opened."""
        if self.config.http_listen:
            self.web = WebThread(
                "http_listen",
                self.config.http_listen,
                lambda web, reactor: mount_mirror(web, reactor, self.status),
                users_file=self.config.users_file,
            )
            self.web.start()
            places = [a if isinstance(a, str) else f"{a[0]}:{a[1]}" for a in self.web.addresses]
            self.status.http = ", ".join(places)
            _log.info("metrics and state are served at %s", self.status.http)
            for text in warnings_of("http_listen", self.config.http_listen):
                _log.warning("NOT SECURED: %s", text)
        self.mirror.start()
        self.status.start()
        sources = ", ".join(map(str, self.config.sources))
        _log.info("mirror %s begins: from %s to %s", self.config.name, sources, self.config.target)

    def stop(self) -> None:
        """Let what is on its way arrive, commit, leave the rest to others."""
        self.status.stop()
        self.mirror.stop()
        if self._counter is not None:
            self._counter.close()
        if self.web is not None:
            self.web.stop()
        _log.info("mirror %s has stopped", self.config.name)

    def _make_guard(
        self, source: str, source_id: str, of_source: Origins | None, of_target: Origins | None
    ) -> LoopGuard:
        self._source_ids[source] = source_id
        return LoopGuard(
            self.config.name,
            source_id,
            self.mirror.target_id,
            of_source,
            of_target,
        )


def run_mirror(
    config: MirrorConfig,
    *,
    reload: Callable[[], MirrorConfig] | None = None,
    until_closed: BinaryIO | None = None,
) -> None:
    """Run a mirror until it is told to end; call it in the main thread.

    Args:
        reload: reads its file again, on SIGHUP; None: SIGHUP does nothing.
        until_closed: what a broker holds open as long as it wants it to run; None without one.

    Raises:
        HermesError: it can't begin; the text says why.
    """
    orders: _Orders = SimpleQueue()
    if until_closed is not None:
        watcher = threading.Thread(target=_watch, args=(until_closed, orders), daemon=True)
        watcher.start()
    former: MirrorConfig | None = None
    wanted: MirrorConfig | None = config
    with _signals(orders):
        while wanted is not None:
            run = MirrorRun(wanted)
            try:
                run.start()
            except HermesError as error:
                if former is None:
                    raise
                _log.error("it goes on with its former settings: %s", error)
                wanted, former = former, None
            else:
                former, wanted = wanted, _run_until(run, reload, orders)


def _run_until(
    run: MirrorRun, reload: Callable[[], MirrorConfig] | None, orders: _Orders
) -> MirrorConfig | None:
    """Let it run until it is to go on with the settings that are returned; None: to end."""
    try:
        while orders.get() is not _Order.END:
            found = _reloaded(run.config, reload)
            if found != run.config:
                return found
        return None
    finally:
        run.stop()


def _reloaded(config: MirrorConfig, reload: Callable[[], MirrorConfig] | None) -> MirrorConfig:
    """Read the file again; what it said before, where it can't be understood."""
    if reload is not None:
        try:
            return reload()
        except ConfigError as error:
            _log.error("its file is not read again, nothing has changed: %s", error)
    return config


@contextmanager
def _signals(orders: _Orders) -> Iterator[None]:
    given = {
        signal.SIGTERM: _Order.END,
        signal.SIGINT: _Order.END,
        signal.SIGHUP: _Order.RELOAD,
    }
    before = {
        number: signal.signal(number, lambda *_, order=order: orders.put(order))
        for number, order in given.items()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(broker: BinaryIO, orders: _Orders) -> None:
    while broker.read(1):
        pass
    orders.put(_Order.END)
    force_exit = threading.Timer(_ORPHAN_SECONDS, os._exit, [1])
    force_exit.daemon = True
    force_exit.start()
