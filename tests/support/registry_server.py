"""A schema registry that is kept in memory, served over HTTP by a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memory_registry import MemoryRegistry

from hermes.broker.clocks import use_monotonic_clock
from hermes.config.listeners import ListenerConfig
from hermes.listening import Listener
from hermes.reactors import make_reactor, release_reactor
from hermes.registry.rest import RegistryResource
from hermes.registry.store import RegistryStore
from hermes.web import WebServer

__all__ = ["served_registry"]


@contextmanager
def served_registry(store: RegistryStore | None = None) -> Iterator[str]:
    """Serve a registry.

    Args:
        store: what it answers from; None for an empty one in memory.

    Yields:
        Its URL, without a slash at its end.
    """
    reactor = make_reactor()
    use_monotonic_clock(reactor)
    web = WebServer(reactor)
    resource = RegistryResource(reactor, store or MemoryRegistry(), web.hosts)
    web.root.add("registry", resource, any_host=True)
    web.on_stop.append(resource.stop)
    listener = ListenerConfig("tcp:0:interface=127.0.0.1")
    web.open([Listener(reactor, "http_listen", listener)])
    host, port = web.addresses[0]
    thread = threading.Thread(target=reactor.run, kwargs={"installSignalHandlers": False})
    thread.start()
    try:
        yield f"http://{host}:{port}/registry"
    finally:
        reactor.callFromThread(lambda: web.stop().addCallback(lambda _: reactor.stop()))
        thread.join()
        release_reactor(reactor)
