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
from queue import SimpleQueue
from typing import BinaryIO, Final

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


class _Orders:
    """What is wanted of the main thread, which waits for it.

    A handler of signals may give an order at any moment. An event would be a trap: the handler
    would wait for the lock that the main thread, which it interrupts, may hold.

    Attributes:
        end: whether it is to end.
        reload: whether it is to read its file again; until it does.
    """

    def __init__(self) -> None:
        self.end = self.reload = False
        self._given = SimpleQueue[None]()

    def to_end(self, *_: object) -> None:
        self.end = True
        self._given.put(None)

    def to_reload(self, *_: object) -> None:
        self.reload = True
        self._given.put(None)

    def wait(self) -> None:
        self._given.get()


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
    orders = _Orders()
    if until_closed is not None:
        watcher = threading.Thread(target=_watch, args=(until_closed, orders), daemon=True)
        watcher.start()
    former: MirrorConfig | None = None
    with _signals(orders):
        while not orders.end:
            try:
                run = MirrorRun(config)
                run.start()
            except HermesError as error:
                if former is None:
                    raise
                _log.error("it goes on with its former settings: %s", error)
                config, former = former, None
            else:
                former, config = config, _run_until(run, reload, orders)


def _run_until(
    run: MirrorRun, reload: Callable[[], MirrorConfig] | None, orders: _Orders
) -> MirrorConfig:
    """Let it run until it is to end, or to go on with the settings that are returned."""
    config = run.config
    try:
        while not orders.end:
            orders.wait()
            if orders.reload:
                orders.reload = False
                found = _reloaded(config, reload)
                if found != config:
                    return found
        return config
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
    handlers = {
        signal.SIGTERM: orders.to_end,
        signal.SIGINT: orders.to_end,
        signal.SIGHUP: orders.to_reload,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(broker: BinaryIO, orders: _Orders) -> None:
    while broker.read(1):
        pass
    orders.to_end()
    force_exit = threading.Timer(_ORPHAN_SECONDS, os._exit, [1])
    force_exit.daemon = True
    force_exit.start()
