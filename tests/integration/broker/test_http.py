"""The HTTP port of a running broker."""

import urllib.error
import urllib.request
from contextlib import closing
from http.client import HTTPConnection

import pytest

from hermes.errors import ConfigError, HermesError
from hermes.testing import running_broker

HTTP = {"http_listen": "tcp:0:interface=127.0.0.1"}


def get(url: str, host: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_port_is_open_while_the_broker_runs() -> None:
    with running_broker(settings=HTTP) as broker:
        assert broker.http is not None
        assert get(f"{broker.http}/health/live") == (200, '{\n  "live": true\n}\n')
        assert get(f"{broker.http}/health/live", host="anything.example")[0] == 200
        assert get(f"{broker.http}/", host="evil.example")[0] == 403
        idle = HTTPConnection(broker.http.removeprefix("http://"), timeout=30)
        idle.request("GET", "/health/live")
        assert idle.getresponse().read()
    with closing(idle):
        assert idle.sock.recv(1) == b""  # the stop closed it
    with pytest.raises(OSError):
        get(f"{broker.http}/health/live")


def test_there_is_none_unless_it_is_asked_for() -> None:
    with running_broker() as broker:
        assert broker.http is None


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"http_listen": "tcp:x"}, ConfigError, "http_listen: expected an endpoint"),
        ({"http_listen": "tcp:1", "listen": "tcp:1"}, ConfigError, "is taken by listen already"),
        ({"http_hosts": ["a:80"]}, ConfigError, "http_hosts: expected a host name or an address"),
        ({"http_listen": "tcp:0:interface=192.0.2.1"}, HermesError, "http_listen: can't open"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    settings: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught, running_broker(settings=settings):
        pass
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
