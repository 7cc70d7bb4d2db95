import pytest

from hermes.web import AcceptedHosts

HOSTS = AcceptedHosts(["Broker-0.example.org", "10.1.2.3", "[2001:db8::1]"])


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:9093",
        "localhost.",
        "127.0.0.1:9093",
        "127.8.8.8",
        "[::1]:9093",
        "[0:0:0:0:0:0:0:1]",
        "broker-0.example.org:80",
        "BROKER-0.EXAMPLE.ORG.",
        "10.1.2.3:9093",
        "[2001:db8::1]:1",
        "[2001:0db8:0::1]",
    ],
)
def test_names_of_ours_are_accepted(host: str) -> None:
    assert HOSTS.accepts([host.encode()])


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example:localhost",
        "localhost:80:90",
        "localhost@evil.example",
        "127.0.0.1.evil.example",
        "10.1.2.4",
        "2130706433",
        "[::2]",
        "localhost:",
        "localhost:123456",
        "local host",
        "localhost\\evil",
        "локалхост",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not HOSTS.accepts([host.encode()])


def test_there_must_be_one_host() -> None:
    assert not HOSTS.accepts([])
    assert not HOSTS.accepts([b"localhost", b"localhost"])
