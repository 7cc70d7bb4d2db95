"""Converts lines of JSON to a registry's records and back; needs fastavro."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hermes.cli.partition_reader import Chunk
from hermes.cli.terminal import note
from hermes.errors import ClientError, ConfigError, EncodingError
from hermes.extras import install_command
from hermes.protocol import Message, RecordMessage
from hermes.protocol.stamps import without_stamp
from hermes.security import ClientSecurity

if TYPE_CHECKING:
    from hermes.schemas import RegistryClient

REGISTRY_OPTION: Final = click.option(
    "--registry",
    "registry_url",
    metavar="URL",
    help="A schema registry: Hermes' own or any with Confluent's REST interface; several with "
    "commas between them.",
)


def schema_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for a file with a schema; the command gets its path as `schema_path`."""
    return click.option(
        "--schema",
        "schema_path",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help=help_text,
    )


@contextmanager
def _client(
    url: str, security: ClientSecurity, retry_seconds: float | None
) -> "Iterator[RegistryClient]":
    from hermes.schemas import RegistryClient  # takes its time, and most commands need none

    client = RegistryClient(
        url,
        retry_seconds=retry_seconds,
        waiting=lambda reason: note(f"{reason}; retrying"),
        **security.settings(),
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def line_encoder(
    url: str,
    security: ClientSecurity,
    schema_path: str,
    topic: str,
    subject: str | None,
    retry_seconds: float,
) -> Iterator[Callable[[bytes], bytes]]:
    """Register a schema, and make the encoder from a line of JSON to a payload.

    Args:
        subject: where the schema is registered; None for `<topic>-value`.

    Yields:
        The encoder; raises ValueError or EncodingError for a line that doesn't fit.

    Raises:
        HermesError: the schema is invalid, was refused, or the registry can't be reached.
    """
    try:
        from hermes.avro.json_values import json_to_value
        from hermes.schemas.records import RecordWriter
    except ModuleNotFoundError as error:
        raise needs_fastavro("--schema") from error
    with _client(url, security, retry_seconds) as client:
        writer = RecordWriter(client, _text(schema_path), subject=subject)
        writer.prepare(topic)
        yield lambda line: writer.write(topic, json_to_value(line, writer.schema.root))


class RecordDecoder:
    """Replaces payloads by their values, as JSON; `report`s messages that are skipped, a line each.

    `skip_corrupt`: whether what can't be read is skipped, with a note, or ends the reading.
    """

    def __init__(
        self,
        read: Callable[[bytes], bytes],
        *,
        skip_corrupt: bool,
        report: Callable[[str], None] = note,
    ) -> None:
        self._read = read
        self._skip_corrupt = skip_corrupt
        self._report = report
        self.skipped = 0

    def decoded(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The same messages, with JSON as their payloads; without those that were skipped.

        Raises ClientError: one can't be read, and isn't to be skipped; those before it were
        yielded; HermesError: the registry refused, or can't be reached.
        """
        for chunk in chunks:
            start = offset = chunk.offset
            good: list[tuple[Message, int]] = []
            for message, following in chunk.messages:
                try:
                    good.append((self._decoded(message), following))
                except EncodingError as error:
                    if good:
                        yield chunk._replace(offset=start, messages=good)
                    self._refuse(chunk, offset, error)
                    start, good = following, []
                offset = following
            if good:
                yield chunk._replace(offset=start, messages=good)

    def _decoded(self, message: Message) -> Message:
        """The message with JSON as its payload; a tombstone as it is."""
        if isinstance(message, RecordMessage):
            payload = message.payload
            shown = None if payload is None else self._read(payload)
            return RecordMessage.of_record(
                shown, message.key, message.headers, message.timestamp_ms
            )
        return Message((self._read(without_stamp(message.payload)), 1, 0, 0))

    def _refuse(self, chunk: Chunk, offset: int, error: EncodingError) -> None:
        where = f"partition {chunk.partition} of topic {chunk.topic}, message at offset {offset}"
        if not self._skip_corrupt:
            raise ClientError(f"{where}: {error} (--skip-corrupt continues after it)") from None
        self._report(f"{where}: skipped: {error}")
        self.skipped += 1


@contextmanager
def record_decoder(
    url: str,
    security: ClientSecurity,
    schema_path: str | None,
    *,
    retry_seconds: float | None,
    skip_corrupt: bool,
) -> Iterator[RecordDecoder]:
    """`schema_path`: a file with an Avro schema to resolve records to; None for the writer's.

    `retry_seconds`: how long to wait for the registry; None for ever.
    """
    try:
        from hermes.schemas.records import RecordReader
    except ModuleNotFoundError as error:
        raise needs_fastavro("--registry") from error
    with _client(url, security, retry_seconds) as client:
        reader = RecordReader(client, None if schema_path is None else _text(schema_path))
        yield RecordDecoder(reader.read_as_json, skip_corrupt=skip_corrupt)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("--schema", f"{path} is not UTF-8") from error


def needs_fastavro(option: str) -> ClientError:
    return ClientError(f"{option} needs fastavro: {install_command('avro')}")
