"""The options that several commands share, and the types of their values."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from hermes.cli.starts import parse_start
from hermes.cli.terminal import note
from hermes.cli.times import parse_time_ms
from hermes.client import SimpleConsumer
from hermes.config.units import parse_size
from hermes.errors import InvalidTopicError
from hermes.protocol import DEFAULT_MAX_EXPANDED_BYTES, RANDOM_PARTITION, check_topic_name

__all__ = [
    "ANY_PARTITION",
    "BROKER_OPTION",
    "CODEC_NAMES",
    "JSON_OPTION",
    "MAX_EXPANDED_OPTION",
    "MAX_MESSAGE_OPTION",
    "PARTITION_OPTION",
    "SIZE",
    "START",
    "TIME",
    "TIMEOUT_OPTION",
    "TOPIC",
    "BrokerAddress",
    "broker_option",
    "coordination_of",
    "coordination_options",
    "option_type",
    "parse_broker",
    "zookeeper_option",
]

DEFAULT_PORT: Final = 9092
CODEC_NAMES: Final = ("none", "gzip", "snappy")

Value = TypeVar("Value")


class BrokerAddress(NamedTuple):
    """Where a broker listens.

    Attributes:
        host: a name, an IPv4 or an IPv6 address (without brackets).
        port: 1 to 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, as it is given on the command line."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def option_type(parse: Callable[[str], Value], shown: str) -> Callable[[str], Value]:
    """Make a parser the type of an option: its ValueError becomes a usage error with its text.

    Args:
        parse: reads what was given.
        shown: what `--help` calls the value where the option doesn't say.
    """

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    convert.__name__ = shown
    return convert


def parse_broker(text: str) -> BrokerAddress:
    """Read `HOST`, `HOST:PORT` or `[IPV6]:PORT`.

    Args:
        text: as given on the command line.

    Raises:
        ValueError: the text says what is expected.
    """
    expected = f"expected HOST:PORT such as localhost:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}"
    host, colon, port = text.strip().rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is no broker: {expected}")
    if not host or any(c in host for c in "/, ") or not (port.isascii() and port.isdigit()):
        raise ValueError(f"{text!r} is no broker: {expected}")
    if not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no broker: a port is a number from 1 to 65535")
    return BrokerAddress(host, int(port))


def _parse_topic(text: str) -> str:
    try:
        check_topic_name(text)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from None
    return text


def _refuse_nan(_: click.Context, __: click.Parameter, value: float) -> float:
    if value != value:  # compares with nothing, so no range refuses it
        raise click.BadParameter("nan is no number of seconds")
    return value


BROKER: Final = option_type(parse_broker, "host:port")
START: Final = option_type(parse_start, "start")
SIZE: Final = option_type(parse_size, "size")
TIME: Final = option_type(parse_time_ms, "time")
TOPIC: Final = option_type(_parse_topic, "topic")

#: What the wire can carry as a partition; `ANY_PARTITION` knows -1 as well, one at random.
PARTITION: Final = click.IntRange(0, 2**31 - 1)
ANY_PARTITION: Final = click.IntRange(RANDOM_PARTITION, 2**31 - 1)

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def broker_option(*, required: bool) -> _Decorator:
    """The option for the broker's address."""
    return click.option(
        "-b",
        "--broker",
        type=BROKER,
        required=required,
        envvar="HERMES_BROKER",
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"The broker's address; port {DEFAULT_PORT} when none is given.",
    )


BROKER_OPTION: Final[_Decorator] = broker_option(required=True)

_OLD_ZOOKEEPER: Final = "hermes.cli.old_zookeeper"


def zookeeper_option(help_text: str, *, required: bool = False) -> _Decorator:
    """The option for ZooKeeper: -Z, and for now also -z, which is kcat's for compression."""

    def take_old(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            note("-z is for compression, as in produce; for ZooKeeper it will go: use -Z")
            ctx.meta[_OLD_ZOOKEEPER] = value

    def take(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        found: str | None = ctx.meta.get(_OLD_ZOOKEEPER, value)
        if found is None and required:
            raise click.MissingParameter(ctx=ctx, param=parameter)
        return found

    option = click.option(
        "-Z",
        "--zookeeper",
        callback=take,
        envvar="HERMES_ZOOKEEPER",
        show_envvar=True,
        metavar="HOST:PORT[/CHROOT]",
        help=help_text,
    )
    old = click.option("-z", "_", hidden=True, is_eager=True, expose_value=False, callback=take_old)
    return lambda command: option(old(command))


def coordination_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where groups are coordinated: -Z, or -b for a broker that tells.

    The command gets `zookeeper`, what kazoo takes.
    """

    @wraps(command)
    def found(
        *args: Any, zookeeper: str | None, broker: BrokerAddress | None, **options: Any
    ) -> Any:
        ctx = click.get_current_context()
        if zookeeper is None and broker is None:
            raise click.UsageError("missing option '-b' / '--broker', or '-Z' / '--zookeeper'")
        given = {
            name: ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            for name in ("zookeeper", "broker")
        }
        if given["zookeeper"] and given["broker"]:
            raise click.UsageError("-b and -Z exclude each other: a broker tells its ZooKeeper")
        if broker is not None and (zookeeper is None or given["broker"]):
            zookeeper = coordination_of(broker, options.get("timeout_seconds", 30.0))
        return command(*args, zookeeper=zookeeper, **options)

    zookeeper = zookeeper_option("ZooKeeper; several servers separated by commas.")
    return zookeeper(broker_option(required=False)(found))


def coordination_of(broker: BrokerAddress, timeout_seconds: float) -> str:
    """Ask a broker where its groups are coordinated. Raises HermesError."""
    with SimpleConsumer(broker.host, broker.port, timeout_seconds=timeout_seconds) as consumer:
        return consumer.coordination()


JSON_OPTION: Final[_Decorator] = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON, one value per line, for programs."
)

PARTITION_OPTION: Final[_Decorator] = click.option(
    "-p",
    "--partition",
    type=PARTITION,
    metavar="N",
    help="One partition; all unless given.",
)

MAX_EXPANDED_OPTION: Final[_Decorator] = click.option(
    "--max-expanded",
    "max_expanded_bytes",
    type=SIZE,
    default=DEFAULT_MAX_EXPANDED_BYTES,
    metavar="SIZE",
    help="What one compressed message may expand to (64MiB unless given).",
)

MAX_MESSAGE_OPTION: Final[_Decorator] = click.option(
    "--max-message",
    "max_message_bytes",
    type=SIZE,
    default=1_000_000,
    metavar="SIZE",
    help="The largest message looked for behind a damaged one (1MB unless given): the broker's "
    "max_message_bytes. Intact messages may be larger.",
)

TIMEOUT_OPTION: Final[_Decorator] = click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, 86_400, min_open=True, clamp=False),
    callback=_refuse_nan,
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer of the broker.",
)
