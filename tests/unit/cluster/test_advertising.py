"""By which host and port clients find a broker's listeners."""

import socket
from typing import Any

import pytest

from hermes.cluster.advertising import advertised_listeners, registered_place
from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_broker_config
from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.errors import ConfigError

TLS = {"certificate": "a.pem", "key": "a.key"}
SCRAM = {"endpoint": "tcp:9094", "tls": TLS, "authentication": "scram"}


def config(**settings: Any) -> BrokerConfig:
    values = {"broker_id": 0, "log_dir": "x", "users_file": "users", "allow_insecure": True}
    return parse_broker_config({**values, **settings})


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "this")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: f"address-of-{name}")


def places(listeners: BrokerListeners) -> list[tuple[str, int]]:
    return [(each.host, each.port) for each in listeners.listeners]


def test_where_it_is_bound_unless_that_is_everywhere() -> None:
    made = config(listen=["tcp:1", "unix:/run/x", SCRAM], http_listen=["tcp:2", "unix:/run/y"])
    found = advertised_listeners(
        made, [("127.0.0.1", 11), "/run/x", ("0.0.0.0", 12)], [("::", 13), "/run/y"]
    )
    assert found.listeners == (
        ListenerNode("0", "127.0.0.1", 11, False, "none"),
        ListenerNode("2", "address-of-this", 12, True, "scram"),
    )
    assert found.http == (ListenerNode("0", "address-of-this", 13, False, "none"),)
    assert registered_place(made, found) == ("127.0.0.1", 11)


def test_what_is_configured_comes_first() -> None:
    outside = {**SCRAM, "advertised": "outside:1"}
    host_only = {**SCRAM, "endpoint": "tcp:9095", "advertised": "host-only"}
    made = config(
        listen=["tcp:1", outside, host_only],
        http_listen=["tcp:2", "tcp:3:interface=127.0.0.1"],
        advertised_host="all",
        advertised_port=99,
    )
    bound = [("127.0.0.1", 11), ("0.0.0.0", 12), ("0.0.0.0", 13)]
    found = advertised_listeners(made, bound, [("0.0.0.0", 21), ("127.0.0.1", 22)])
    assert places(found) == [("all", 99), ("outside", 1), ("host-only", 13)]
    assert [(each.host, each.port) for each in found.http] == [("all", 21), ("127.0.0.1", 22)]
    assert registered_place(made, found) == ("all", 99)


def test_kafka_0_7_finds_what_it_can_use_else_the_first() -> None:
    both = config(listen=[SCRAM, "tcp:1"])
    found = advertised_listeners(both, [("a", 1), ("b", 2)], [])
    assert registered_place(both, found) == ("b", 2)
    closed = config(listen=[{**SCRAM, "advertised": "out:7"}], advertised_port=99)
    found = advertised_listeners(closed, [("a", 1)], [])
    assert registered_place(closed, found) == ("out", 7)  # its own word, not advertised_port


def test_unix_sockets_alone() -> None:
    made = config(listen="unix:/run/x", coordination="none")
    found = advertised_listeners(made, ["/run/x"], [])
    assert found == BrokerListeners(())
    with pytest.raises(ConfigError, match="advertised_port: needed"):
        registered_place(made, found)
    made = config(listen="unix:/run/x", advertised_port=5)
    assert registered_place(made, found) == ("address-of-this", 5)


def test_a_machine_whose_name_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_address(_: str) -> str:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "gethostbyname", no_address)
    with pytest.raises(ConfigError, match="advertised_host: needed, as this machine's name"):
        advertised_listeners(config(listen="tcp:1"), [("0.0.0.0", 1)], [])
    local = config(http_listen="tcp:2")
    found = advertised_listeners(local, [("127.0.0.1", 1)], [("0.0.0.0", 2)])
    assert (places(found), found.http) == ([("127.0.0.1", 1)], ())
