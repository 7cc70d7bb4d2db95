"""Avro with the schemas of a registry: payloads as Confluent's serializers write them."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import IDecoder, IEncoder
from hermes.schemas.records import RecordReader, RecordWriter, references_of
from hermes.schemas.registry_client import RegistryClient
from hermes.security.password_files import read_password_file

_log = logging.getLogger(__name__)


@implementer(IEncoder, IDecoder)
class RegistryAvroEncoder:
    """Encodes with one schema, and decodes what was written with any that the registry has.

    Schemas are cached: the registry is asked once for each. A decoder that finds no registry waits
    until there is one, with a line in the log, since an error would cost the message; an encoder
    gives up after `retry_seconds`.

    Args:
        registry: its URL, or several with commas between them; see `RegistryClient`.
        schema: what to write with: what `json.load` returns, or the JSON text. None to write with
            the latest schema of `subject`, or to decode only.
        schema_file: a file with that JSON, in its place.
        subject: where the schema is registered, whatever the topic.
        subject_strategy: what names the subject otherwise: `topic` (`<topic>-value`), `record`
            (the record's full name) or `topic-record` (`<topic>-<record>`).
        register: whether to register the schema when it is first used for a topic; otherwise it
            must be by then.
        references: the registered schemas whose types it names: `name`, `subject` and `version`
            of each.
        reader_schema: an Avro schema to which values are resolved when they are decoded; None to
            take them as they were written.
        timeout_seconds: how long the registry may take to respond.
        retry_seconds: how long an encoder retries while it doesn't.
        tls_ca, tls_certificate, tls_key, user: as for `RegistryClient`.
        password_file: a file with the user's password, one line.
    """

    def __init__(
        self,
        registry: str | Sequence[str],
        *,
        schema: Any = None,
        schema_file: str | None = None,
        subject: str | None = None,
        subject_strategy: str = "topic",
        register: bool = True,
        references: Sequence[Mapping[str, Any]] = (),
        reader_schema: Any = None,
        timeout_seconds: float = 10.0,
        retry_seconds: float = 30.0,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        user: str | None = None,
        password_file: str | None = None,
    ) -> None:
        if schema is not None and schema_file is not None:
            raise ConfigError("encoder_options", "schema and schema_file exclude each other")
        if schema_file is not None:
            schema = _read_file(schema_file)
        make = partial(
            RegistryClient,
            registry,
            timeout_seconds=timeout_seconds,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            user=user,
            password=None if password_file is None else read_password_file(password_file),
        )
        self._registry = make(retry_seconds=retry_seconds)
        self._writer: RecordWriter | None = None
        if schema is None and subject is not None:
            latest = self._registry.latest(subject)
            schema, references = latest.text, [each._asdict() for each in latest.references]
            register = False
        if schema is not None:
            self._writer = RecordWriter(
                self._registry,
                schema,
                subject=subject,
                strategy=subject_strategy,
                references=references_of(references),
                may_register=register,
            )
        patient = make(retry_seconds=None, waiting=_say_waiting)
        self._reader = RecordReader(patient, reader_schema)

    def encode(self, topic: str, value: Any) -> bytes:
        """See `IEncoder`; fields that the schema doesn't have are refused."""
        if self._writer is None:
            raise ConfigError("encoder_options.schema", "needed to encode values")
        return self._writer.write(topic, value)

    def decode(self, topic: str, payload: bytes) -> Any:
        return self._reader.read(payload)


def _say_waiting(reason: str) -> None:
    _log.warning("waiting for a schema registry: %s", reason)


def _read_file(path: str) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError("encoder_options.schema_file", f"{path}: {error}") from error
