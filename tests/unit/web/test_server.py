"""How a server stops; no port is open."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.web import WebServer


def test_what_was_added_first_stops_last() -> None:
    """The console waits for its threads, and those for a password that the guard is checking."""
    stopped: list[str] = []
    console: Deferred[None] = Deferred()

    def stop_console() -> Deferred[None]:
        stopped.append("console")
        return console

    server = WebServer(Clock())
    server.on_stop.append(lambda: stopped.append("guard"))
    server.on_stop.append(stop_console)
    server.stop()
    assert stopped == ["console"]
    console.callback(None)
    assert stopped == ["console", "guard"]
