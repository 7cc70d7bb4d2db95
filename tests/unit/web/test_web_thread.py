"""A web server in a thread of its own: whoever starts it hears of whatever is wrong."""

import pytest

from hermes.config.listeners import ListenerConfig
from hermes.web.web_thread import WebThread


def test_whatever_is_wrong_at_the_start_is_raised() -> None:
    def mount(server: object, reactor: object) -> None:
        raise RuntimeError("can't start new thread")

    listener = ListenerConfig("tcp:0:interface=127.0.0.1")
    thread = WebThread("listen", [listener], mount)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        thread.start()
