"""Where brokers are, as people write it."""

import pytest

from hermes.config.addresses import BrokerAddress, parse_broker, parse_brokers


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", ("localhost", 9092)),
        (" box:7 ", ("box", 7)),
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("[::1]", ("::1", 9092)),
        (" [::1] ", ("::1", 9092)),
        ("[fe80::1%eth0]:9", ("fe80::1%eth0", 9)),
    ],
)
def test_what_is_an_address(text: str, address: tuple[str, int]) -> None:
    assert parse_broker(text) == address
    assert parse_broker(str(BrokerAddress(*address))) == address


@pytest.mark.parametrize(
    "text",
    ["", ":", "a:", ":1", "a:b", "a:0", "a:65536", "a:1:2", "::1", "[::1", "a/b:1", "a b", "a:²",
     "a:" + "9" * 5000, "x" * 10_000 + ":y"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a broker's address: ") as caught:
        parse_broker(text)
    assert len(str(caught.value)) < 250


def test_a_list_is_a_list_or_has_commas() -> None:
    both = (BrokerAddress("a", 1), BrokerAddress("b", 9092))
    assert parse_brokers("a:1, b, a:1") == parse_brokers(["a:1", "b"]) == both
    for nothing in ("", [], ["a", 7]):
        with pytest.raises(ValueError, match="expected HOST:PORT"):
            parse_brokers(nothing)  # type: ignore[arg-type]
