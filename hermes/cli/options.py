"""Options and option types that several commands share."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import click

from hermes.client import SimpleConsumer, SyncProducer
from hermes.config import addresses
from hermes.config.units import parse_size
from hermes.errors import InvalidTopicError
from hermes.protocol import DEFAULT_MAX_EXPANDED_BYTES, RANDOM_PARTITION, Codec, check_topic_name
from hermes.security import ClientSecurity

_MAX_PARTITION: Final = 2**31 - 1  # what a request can hold

Value = TypeVar("Value")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# -- types --------------------------------------------------------------------------------------


class CommandConnection(NamedTuple):
    security: ClientSecurity
    timeout_seconds: float

    def settings(self) -> dict[str, Any]:
        """As keyword arguments of the library's clients."""
        return {"timeout_seconds": self.timeout_seconds, **self.security.settings()}


class BrokerOption(addresses.BrokerAddress):
    __slots__ = ()

    def consumer(self, connection: CommandConnection, **settings: Any) -> SimpleConsumer:
        """A consumer of this broker, which the caller closes."""
        return SimpleConsumer(self.host, self.port, **connection.settings(), **settings)

    def producer(self, connection: CommandConnection) -> SyncProducer:
        """A synchronous producer to this broker, which the caller closes."""
        return SyncProducer(self.host, self.port, **connection.settings())


def option_type(parse: Callable[[str], Value], shown: str) -> Callable[[str], Value]:
    """Make a parser the type of an option: its ValueError becomes a usage error with its text."""

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    convert.__name__ = shown
    return convert


def parse_broker(text: str) -> BrokerOption:
    return BrokerOption(*addresses.parse_broker(text))


def _parse_topic(text: str) -> str:
    try:
        check_topic_name(text)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from None
    return text


def _refuse_nan(_: click.Context, __: click.Parameter, value: float) -> float:
    if value != value:  # compares with nothing, so no range refuses it
        raise click.BadParameter("nan is not a number of seconds")
    return value


SIZE: Final = option_type(parse_size, "size")
TOPIC: Final = option_type(_parse_topic, "topic")


# -- where --------------------------------------------------------------------------------------


def broker_option(*, required: bool) -> Decorator:
    return click.option(
        "-b",
        "--broker",
        type=option_type(parse_broker, "host:port"),
        required=required,
        envvar="HERMES_BROKER",
        show_envvar=True,
        metavar="HOST:PORT",
        help=f"The broker's address; port {addresses.DEFAULT_PORT} when none is given.",
    )


BROKER_OPTION: Final = broker_option(required=True)


def zookeeper_option(help_text: str) -> Decorator:
    """The option for ZooKeeper."""
    return click.option(
        "-Z",
        "--zookeeper",
        envvar="HERMES_ZOOKEEPER",
        show_envvar=True,
        metavar="HOST:PORT[/CHROOT]",
        help=help_text,
    )


def kafka_option(help_text: str) -> Decorator:
    """Add -k, of which `kafka` of the command is the address; None where it isn't given."""
    return click.option(
        "-k",
        "--kafka",
        type=option_type(parse_broker, "address"),
        metavar="HOST:PORT",
        help=help_text,
    )


def topic_option(help_text: str) -> Decorator:
    return click.option("-t", "--topic", type=TOPIC, required=True, metavar="TOPIC", help=help_text)


TOPICS_ARGUMENT: Final = click.argument(
    "topics", metavar="TOPIC...", nargs=-1, required=True, type=TOPIC
)

PARTITION_OPTION: Final = click.option(
    "-p",
    "--partition",
    type=click.IntRange(0, _MAX_PARTITION),
    metavar="N",
    help="One partition; by default all.",
)


def any_partition_option(default: int, help_text: str) -> Decorator:
    """The option for the partition to send to; -1 lets the broker choose."""
    return click.option(
        "-p",
        "--partition",
        type=click.IntRange(RANDOM_PARTITION, _MAX_PARTITION),
        metavar="N",
        default=default,
        show_default=True,
        help=help_text,
    )


# -- how ----------------------------------------------------------------------------------------

TIMEOUT_OPTION: Final = click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, 86_400, min_open=True, clamp=False),
    callback=_refuse_nan,
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the broker's response.",
)


def acks_option(default: str, help_text: str) -> Decorator:
    """The option for acknowledgements; the command gets the level's name as `acks_name`."""
    return click.option(
        "--acks",
        "acks_name",
        type=click.Choice(("none", "written", "flushed")),
        default=default,
        show_default=True,
        help=help_text,
    )


def compress_option(help_text: str) -> Decorator:
    """The option for compression; the command gets a `Codec` as `codec`."""
    return click.option(
        "-z",
        "--compress",
        "codec",
        type=click.Choice([codec.name.lower() for codec in Codec]),
        callback=lambda _ctx, _parameter, name: Codec[name.upper()],
        default="none",
        show_default=True,
        help=help_text,
    )


JSON_OPTION: Final = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON, one value per line, for programs."
)

QUIET_OPTION: Final = click.option(
    "-q", "--quiet", is_flag=True, help="No status and no progress on the terminal."
)

YES_OPTION: Final = click.option("--yes", is_flag=True, help="Don't ask.")

MAX_EXPANDED_OPTION: Final = click.option(
    "--max-expanded",
    "max_expanded_bytes",
    type=SIZE,
    default=DEFAULT_MAX_EXPANDED_BYTES,
    metavar="SIZE",
    help="What one compressed message may expand to (64MiB unless given).",
)

MAX_MESSAGE_OPTION: Final = click.option(
    "--max-message",
    "max_message_bytes",
    type=SIZE,
    default=1_000_000,
    metavar="SIZE",
    help="The largest message looked for after a damaged one (1MB unless given): the broker's "
    "max_message_bytes. Intact messages may be larger.",
)
