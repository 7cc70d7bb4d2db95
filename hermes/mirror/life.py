"""The life of a mirror process: from its settings to its end, whoever asks for that.

A mirror ends by SIGTERM or SIGINT, by itself when it can't go on, or, if a broker runs it, when the
broker closes its standard input: that is also what the end of the broker's process does, however
that came about. SIGHUP lets it read its file again.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

from hermes.config import MirrorConfig
from hermes.config.exposure import warnings_of
from hermes.coordination.sessions import Session
from hermes.errors import ConfigError
from hermes.mirror.auditing import MirrorCounter
from hermes.mirror.loops import LoopGuard
from hermes.mirror.pipeline import Mirror
from hermes.mirror.serving import mount_mirror
from hermes.mirror.telling import StatusPublisher
from hermes.web import WebThread

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
#: When the broker has gone, nobody waits for a good end: it is cut off after so long.
_ORPHAN_SECONDS: Final = 30.0


class MirrorRun:
    """A mirror with what belongs to it: loops refused, its state told, HTTP.

    Args:
        config: its settings.
    """

    def __init__(self, config: MirrorConfig) -> None:
        self.config = config
        self._counter = MirrorCounter(config) if config.audit else None
        self._source_ids = dict.fromkeys((each.name for each in config.sources), "")
        self.mirror = Mirror(config, make_guard=self._make_guard, counter=self._counter)
        self.telling = StatusPublisher(self.mirror, config.name, self._source_ids)
        self.web: WebThread | None = None

    def start(self) -> None:
        """Begin.

        Raises:
            HermesError: the HTTP port can't be opened.
        """
        if self.config.http_listen:
            self.web = WebThread(
                "http_listen",
                self.config.http_listen,
                lambda web, reactor: mount_mirror(web, reactor, self.telling),
                users_file=self.config.users_file,
            )
            self.web.start()
            places = [a if isinstance(a, str) else f"{a[0]}:{a[1]}" for a in self.web.addresses]
            self.telling.http = ", ".join(places)
            _log.info("metrics and state are served at %s", self.telling.http)
            for text in warnings_of("http_listen", self.config.http_listen):
                _log.warning("NOT SECURED: %s", text)
        self.mirror.start()
        self.telling.start()
        sources = ", ".join(map(str, self.config.sources))
        _log.info("mirror %s begins: from %s to %s", self.config.name, sources, self.config.target)

    def stop(self) -> None:
        """Let what is on its way arrive, commit, leave the rest to others."""
        self.telling.stop()
        self.mirror.stop()
        if self._counter is not None:
            self._counter.close()
        if self.web is not None:
            self.web.stop()
        _log.info("mirror %s has stopped", self.config.name)

    def _make_guard(self, source: str, source_id: str, session: Session | None) -> LoopGuard:
        self._source_ids[source] = source_id
        return LoopGuard(
            self.config.name,
            source_id,
            self.mirror.target_id,
            session,
            self.mirror.target_session,
        )


def run_mirror(
    config: MirrorConfig,
    *,
    read_again: Callable[[], MirrorConfig] | None = None,
    until_closed: BinaryIO | None = None,
) -> None:
    """Run a mirror until it is told to end; call it in the main thread.

    Args:
        config: its settings.
        read_again: reads its file again, on SIGHUP; None: SIGHUP does nothing.
        until_closed: what a broker holds open as long as it wants it to run; None without one.

    Raises:
        HermesError: it can't begin, or has ended by itself; the text says why.
    """
    end, again = threading.Event(), threading.Event()
    if until_closed is not None:
        watcher = threading.Thread(target=_watch, args=(until_closed, end), daemon=True)
        watcher.start()
    with _signals(end, again):
        while not end.is_set():
            config = _run_until(config, read_again, end, again)


def _run_until(
    config: MirrorConfig,
    read_again: Callable[[], MirrorConfig] | None,
    end: threading.Event,
    again: threading.Event,
) -> MirrorConfig:
    """Run it until it is to end, or to go on with the settings that are returned."""
    run = MirrorRun(config)
    run.start()
    try:
        while not end.is_set():
            if run.mirror.wait(_LOOK_SECONDS):
                assert run.mirror.failed is not None
                raise run.mirror.failed
            if again.is_set():
                again.clear()
                found = _reread(config, read_again)
                if found != config:
                    return found
        return config
    finally:
        run.stop()


def _reread(config: MirrorConfig, read_again: Callable[[], MirrorConfig] | None) -> MirrorConfig:
    """Read the file again; what it said before, where it can't be understood."""
    if read_again is not None:
        try:
            return read_again()
        except ConfigError as error:
            _log.error("its file is not read again, nothing has changed: %s", error)
    return config


@contextmanager
def _signals(end: threading.Event, again: threading.Event) -> Iterator[None]:
    handlers = {
        signal.SIGTERM: lambda *_: end.set(),
        signal.SIGINT: lambda *_: end.set(),
        signal.SIGHUP: lambda *_: again.set(),
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(broker: BinaryIO, end: threading.Event) -> None:
    while broker.read(1):
        pass
    end.set()
    patience = threading.Timer(_ORPHAN_SECONDS, os._exit, [1])
    patience.daemon = True
    patience.start()
