"""`hermes produce`: a file or stdin, one message per line."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import click

from hermes.cli.batch_sender import BatchSender, choose_acks
from hermes.cli.line_batches import DescriptorSource, LineBatch, LineTooLongError, read_batches
from hermes.cli.message_formats import DELIMITER
from hermes.cli.options import (
    BROKER_OPTION,
    QUIET_OPTION,
    BrokerOption,
    CommandConnection,
    acks_option,
    any_partition_option,
    compress_option,
    topic_option,
)
from hermes.cli.record_codec import REGISTRY_OPTION, line_encoder, schema_option
from hermes.cli.retrying import Retrying
from hermes.cli.security_options import connection_options
from hermes.cli.terminal import note, progress, status
from hermes.errors import ClientError
from hermes.protocol import RANDOM_PARTITION, Codec
from hermes.security import ClientSecurity

_BATCH_LINES: Final = 5000
_BATCH_BYTES: Final = 512 * 1024
_LINGER_SECONDS: Final = 0.005


@click.command("produce", short_help="Publish lines as messages.")
@BROKER_OPTION
@topic_option("Where to.")
@any_partition_option(
    RANDOM_PARTITION, "-1 lets the broker choose one at random for every batch of lines."
)
@acks_option(
    "flushed",
    "What to wait for: nothing, or that messages are written, or flushed to disk. A broker "
    "of Kafka 0.7 supports none only.",
)
@compress_option("Compress every batch of lines.")
@click.option(
    "-K",
    "--key-delimiter",
    type=DELIMITER,
    metavar="TEXT",
    help="A line begins with a key, which ends here. Equal keys go to the same partition, the one "
    "that producers of Kafka 0.7 choose. Topics of Kafka's format store the key itself, too.",
)
@click.option(
    "-D",
    "--delimiter",
    type=DELIMITER,
    metavar="TEXT",
    default=r"\n",
    show_default=True,
    help=r"What ends a message: text, with \n \r \t \\ \0 \xHH.",
)
@schema_option(
    "An Avro schema (JSON): each line is a record in JSON, and is sent as Avro with the id that "
    "the registry gives the schema."
)
@REGISTRY_OPTION
@click.option(
    "--subject",
    metavar="NAME",
    help="Where the registry keeps the schema's versions; TOPIC-value unless given.",
)
@QUIET_OPTION
@connection_options
@click.option(
    "--delivery-timeout",
    "delivery_seconds",
    type=click.FloatRange(0, 86_400),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="How long to retry while the broker is unavailable; not with --acks none.",
)
@click.argument("path", metavar="[FILE]", default="-", type=click.Path(allow_dash=True))
@click.pass_context
def command(
    ctx: click.Context,
    broker: BrokerOption,
    topic: str,
    partition: int,
    acks_name: str,
    codec: Codec,
    key_delimiter: bytes | None,
    delimiter: bytes,
    schema_path: str | None,
    registry_url: str | None,
    subject: str | None,
    quiet: bool,
    connection: CommandConnection,
    delivery_seconds: float,
    path: str,
) -> None:
    """Publish FILE, or stdin, to a topic: one message per line, without its newline.

    Lines may hold any bytes; an empty line is an empty message. From a pipe, lines are sent as
    they come. A broker that becomes unavailable is waited for; lines whose fate is unknown then
    are sent again, and may be stored twice. Exit status 0 means that the broker has every line, as
    far as --acks says; an error says how many lines are stored for certain.

    With --schema, the registry is asked before anything is sent: it refuses a schema with which
    readers of the topic couldn't read on. A line that doesn't fit ends the command.
    """
    if key_delimiter is not None and partition != RANDOM_PARTITION:
        raise click.UsageError("--partition and --key-delimiter exclude each other")
    acks_given = ctx.get_parameter_source("acks_name") is not click.core.ParameterSource.DEFAULT
    encoding = _encoding(
        schema_path, registry_url, connection.security, topic, subject, delivery_seconds
    )
    with (
        _opened(path) as descriptor,
        encoding as encode,
        broker.producer(connection) as producer,
    ):
        acks = choose_acks(producer, acks_name, is_required=acks_given)
        retrying = Retrying(delivery_seconds, quiet=quiet)
        sender = BatchSender(producer, topic, partition, acks, codec, retrying, encode=encode)
        if key_delimiter is not None:
            sender.choose_by_key(key_delimiter)
        with progress(_file_bytes(descriptor), "sending", quiet=quiet) as advance:
            try:
                for batch in _batches(descriptor, sender, delimiter):
                    sender.send(batch)
                    advance(batch.byte_count + len(batch.lines))
            except KeyboardInterrupt:
                note(sender.progress_text())
                raise
            sender.finish()
    status(f"{sender.stored_count} messages sent to {topic}", quiet=quiet)


def _encoding(
    schema_path: str | None,
    registry_url: str | None,
    security: ClientSecurity,
    topic: str,
    subject: str | None,
    delivery_seconds: float,
) -> AbstractContextManager[Callable[[bytes], bytes] | None]:
    if schema_path is None:
        if subject is not None:
            raise click.UsageError("--subject is for --schema")
        return nullcontext()
    if not registry_url:
        raise click.UsageError("--schema needs --registry")
    return line_encoder(registry_url, security, schema_path, topic, subject, delivery_seconds)


def _batches(descriptor: int, sender: BatchSender, delimiter: bytes) -> Iterator[LineBatch]:
    """The lines in batches; the error for one that is too long says what was stored before it."""
    batches = read_batches(
        DescriptorSource(descriptor),
        max_lines=_BATCH_LINES,
        max_batch_bytes=min(_BATCH_BYTES, sender.max_message_bytes),
        max_line_bytes=sender.max_message_bytes,
        linger_seconds=_LINGER_SECONDS,
        delimiter=delimiter,
    )
    try:
        yield from batches
    except LineTooLongError as error:
        sender.finish()
        raise ClientError(f"{error}; {sender.progress_text()}") from None


@contextmanager
def _opened(path: str) -> Iterator[int]:
    if path == "-":
        yield sys.stdin.fileno()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise click.BadParameter(f"{path} is a directory, not a file of lines")
        yield descriptor
    finally:
        os.close(descriptor)


def _file_bytes(descriptor: int) -> int | None:
    described = os.fstat(descriptor)
    return described.st_size if stat.S_ISREG(described.st_mode) else None
