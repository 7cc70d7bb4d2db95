"""Encodes and decodes records by a registry's schemas, for the pages with messages."""

import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from hermes.errors import EncodingError, HermesError, SchemaRegistryError
from hermes.schemas import RegistryClient
from hermes.schemas.registered import RegisteredSchema
from hermes.security import PLAIN, ClientSecurity

if TYPE_CHECKING:
    from hermes.schemas.records import RecordReader

_TIMEOUT_SECONDS: Final = 2.0
# How long a registry that failed is not asked again, so that it doesn't hold up every message.
_LEFT_ALONE_SECONDS: Final = 5.0


class RegistryRecords:
    """Reads payloads that carry their schema's id. Thread-safe; may block.

    Args:
        name: for people; the URL unless given.

    Raises:
        ConfigError: the URL is wrong.
        ModuleNotFoundError: fastavro is not installed.
    """

    def __init__(
        self,
        url: str,
        security: ClientSecurity = PLAIN,
        clock: Callable[[], float] = time.monotonic,
        *,
        name: str = "",
    ) -> None:
        if find_spec("fastavro") is None:
            raise ModuleNotFoundError("there is no module fastavro", name="fastavro")
        self._client = RegistryClient(
            url,
            timeout_seconds=_TIMEOUT_SECONDS,
            retry_seconds=0,
            **security.settings(),
        )
        self.name: Final = name or self._client.name
        self._reader: RecordReader | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._failure: tuple[float, HermesError] | None = None

    def read(self, payload: bytes) -> Any:
        """Decode a payload.

        Raises EncodingError: it isn't a record of a schema that the registry knows; HermesError:
        the registry can't be asked, or couldn't a moment ago.
        """
        with self._lock:
            failure = self._failure
        if failure is not None and self._clock() - failure[0] < _LEFT_ALONE_SECONDS:
            raise failure[1]
        try:
            value = self._made_reader().read(payload)
        except EncodingError:
            raise
        except HermesError as error:
            with self._lock:
                self._failure = (self._clock(), error)
            raise
        with self._lock:
            self._failure = None
        return value

    def encode(self, subject: str, version: int | None, text: bytes) -> bytes:
        """Encode a record typed as JSON.

        Args:
            version: of the subject; None for the latest.

        Raises:
            UnknownSchemaError: there is no such schema.
            ValueError, EncodingError: the text doesn't fit the schema, which must be Avro.
            HermesError: the registry can't be asked.
        """
        from hermes.avro.json_values import json_to_value
        from hermes.avro.schema import AvroSchema
        from hermes.schemas.framing import header

        if version is None:
            found = self._client.latest(subject)
        else:
            found = self._client.version(subject, version)
        if found.schema_type != "AVRO":
            raise EncodingError(
                f"schema {found.schema_id} is of type {found.schema_type}, not Avro"
            )
        *referenced, written = self._client.texts(found)
        schema = AvroSchema(written, referenced)
        value = json_to_value(text, schema.root)
        return header(found.schema_id) + schema.write(value, is_strict=True)

    def subjects(self) -> list[str]:
        return self._client.subjects()

    def versions(self, subject: str) -> list[int]:
        return self._client.versions(subject)

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Read a version of a subject, past the cache."""
        return self._client.version(subject, version, fresh=True)

    def compatibility(self, subject: str) -> str:
        """The subject's compatibility level; empty if the registry refuses to say."""
        try:
            return self._client.compatibility(subject)
        except SchemaRegistryError:
            return ""

    def _made_reader(self) -> "RecordReader":
        with self._lock:
            if self._reader is None:
                # Only now: a broker starts without it, and may never need it.
                from hermes.schemas.records import RecordReader

                self._reader = RecordReader(self._client)
            return self._reader

    def close(self) -> None:
        self._client.close()
