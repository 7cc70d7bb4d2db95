"""Addresses of brokers in settings and on command lines: `HOST:PORT`."""

from typing import Final, NamedTuple

from hermes.quoting import quoted

#: What a broker listens on unless told otherwise.
DEFAULT_PORT: Final = 9092

# What DNS allows.
_LONGEST_HOST: Final = 255

_EXPECTED: Final = f"expected HOST:PORT such as localhost:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}"


class BrokerAddress(NamedTuple):
    """Where a broker listens; the host is a name or an address, IPv6 without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_broker(text: str) -> BrokerAddress:
    """Parse `HOST`, `HOST:PORT` or `[IPV6]:PORT`; ValueError says what is expected."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.strip().endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{quoted(text)} is not a broker's address: {_EXPECTED}")
    is_host = 0 < len(host) <= _LONGEST_HOST and not any(c in host for c in "/, []")
    if not is_host or not (port.isascii() and port.isdigit()):
        raise ValueError(f"{quoted(text)} is not a broker's address: {_EXPECTED}")
    if not (len(port) <= 5 and 0 < int(port) < 65536):
        raise ValueError(
            f"{quoted(text)} is not a broker's address: a port is a number from 1 to 65535"
        )
    return BrokerAddress(host, int(port))


def parse_brokers(value: object) -> tuple[BrokerAddress, ...]:
    """Parse a comma-separated string, or a list, of addresses, each once; ValueError for none."""
    texts = value.split(",") if isinstance(value, str) else value
    if not (isinstance(texts, list | tuple) and texts and all(type(e) is str for e in texts)):
        raise ValueError(f"{_EXPECTED}, or a list of them; got {quoted(value)}")
    return tuple(dict.fromkeys(map(parse_broker, texts)))
