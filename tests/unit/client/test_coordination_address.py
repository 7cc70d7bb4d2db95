"""What a client makes of where a broker says that coordination is."""

from typing import Any

import pytest

from hermes.client import SimpleConsumer
from hermes.errors import ClientError


@pytest.mark.parametrize(
    ("host", "told", "expected"),
    [
        ("broker1", "zk1:2181,zk2:2181/hermes", "zk1:2181,zk2:2181/hermes"),
        ("broker1", ":2181", "broker1:2181"),
        ("127.0.0.1", ":2181", "127.0.0.1:2181"),
        ("::1", ":2181", "[::1]:2181"),
        ("localhost", "127.0.0.1:2181", "127.0.0.1:2181"),
        ("127.0.0.1", "localhost:2181/a", "localhost:2181/a"),
    ],
)
def test_an_address_is_made_one_for_this_client(host: str, told: str, expected: str) -> None:
    assert _asked(host, told) == expected


@pytest.mark.parametrize(
    ("host", "told", "says"),
    [
        ("broker1", "127.0.0.1:2181", "on its own machine only"),
        ("10.0.0.7", "[::1]:2181", "on its own machine only"),
        ("broker1", "", "takes no part in coordination"),
    ],
)
def test_what_is_none_is_an_error(host: str, told: str, says: str) -> None:
    with pytest.raises(ClientError, match=says):
        _asked(host, told)


def _asked(host: str, told: str) -> str:
    def run(conversation: Any) -> str:
        conversation.close()
        return told

    with SimpleConsumer(host, 9092, supports_hermes_requests=True) as consumer:
        consumer._channel.run = run  # type: ignore[method-assign,assignment]
        return consumer.coordination()
