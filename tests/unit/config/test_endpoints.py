"""Endpoint strings, as far as they can be checked without Twisted."""

import pytest

from hermes.config.listeners import LISTENERS, ListenerConfig


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp:9092",
        "tcp:0",
        "tcp:port=9092",
        "tcp:interface=127.0.0.1:port=9092",
        "tcp:9092:interface=127.0.0.1:backlog=50",
        r"tcp6:9092:interface=\:\:1",
        "unix:/run/hermes.sock",
        "systemd:domain=INET:index=0",
        "someplugin:whatever",
    ],
)
def test_an_endpoint_is_taken_as_it_is(endpoint: str) -> None:
    assert LISTENERS.parse(endpoint) == (ListenerConfig(endpoint),)
    assert LISTENERS.parse([endpoint, "tcp:1"]) == (
        ListenerConfig(endpoint),
        ListenerConfig("tcp:1", name="1"),
    )


@pytest.mark.parametrize(
    ("endpoint", "hint"),
    [
        (9092, r"write tcp:9092\)"),
        ("9092", r"write tcp:9092\)"),
        ("localhost:9092", r"write tcp:9092:interface=localhost\)"),
        ("127.0.0.1:9092", r"write tcp:9092:interface=127.0.0.1\)"),
        (":9092", "got ':9092'"),
        ("tcp", "ends after its type"),
        ("unix:", "ends after its type"),
        ("tcp:65536", "port is not within 0 to 65535"),
        ("tcp:http", "port is not within"),
        ("tcp:interface=127.0.0.1", "port is not within"),
        ("", "got ''"),
        (None, "got None"),
        (True, "got True"),
        ([], r"got \[\]"),
        (["tcp:1", 3], "write tcp:3"),
        ("ssl:9093:privateKey=key.pem", "write a mapping: endpoint: tcp:PORT, and tls"),
    ],
)
def test_what_can_not_be_an_endpoint_is_refused(endpoint: object, hint: str) -> None:
    with pytest.raises(ValueError, match=f"expected .*endpoint such as tcp:9092.*{hint}"):
        LISTENERS.parse(endpoint)
