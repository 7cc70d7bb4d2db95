"""The messages of Kafka's requests, as the package `kio` has them: generated from Kafka's schemas.

All of them take 1.7 s to import. So each is loaded by request and version when it is first needed,
in a worker thread; `kio` itself with the first one.
"""

from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Any

from hermes.kafka.apis import Api
from hermes.kafka.array_bounds import ArrayBounds
from hermes.kafka.compiled_messages import encoder_of, maker_of
from hermes.protocol import core
from hermes.protocol.kio_messages import import_messages, without_hypothesis
from hermes.protocol.wire import Buffer


class Schema:
    """The messages of one request in one version.

    Its other attributes make the parts of a response: `schema.MetadataResponse(...)`. What the
    version doesn't have is dropped, so that a handler names all that any version has: see
    `maker_of`.

    Args:
        is_exact: whether requests are read as the schema has them, also where the API has a
            `reader`.

    Attributes:
        is_flexible: whether the version has tags, in the request's header, too.
    """

    def __init__(self, api: Api, version: int, *, is_exact: bool = False) -> None:
        from kio.serial import entity_reader

        requests, self._module = import_messages(api.name, version)
        request = getattr(requests, f"{api.name}Request")
        response = getattr(self._module, f"{api.name}Response")
        self._version = version
        self._read_plain: Callable[[Buffer, int, int], Any] | None = None
        if api.reader and not is_exact:
            module, _, function = api.reader.partition(":")
            self._read_plain = getattr(import_module(module), function)
        self._bounds = ArrayBounds(request)
        self._read: Callable[[Buffer, int], tuple[Any, int]] = entity_reader(request)
        self._encode = encoder_of(response)
        self.is_flexible: bool = request.__flexible__
        self._has_response_tags: bool = response.__header_schema__.__version__ > 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        maker = maker_of(getattr(self._module, name, None))
        setattr(self, name, maker)
        return maker

    def read(self, data: Buffer, position: int) -> Any:
        """Decode a request, whose body begins at `position`, by the API's `reader` or the schema.

        Raises:
            RemoteProtocolError: an array declares more than there is.
            Exception: it can't be read; `kio` has many.
        """
        if self._read_plain is not None:
            found = self._read_plain(data, position, self._version)
            if found is not None:
                return found
        if core.whole_message(self._bounds.steps, data, position) < 0:
            data = self._bounds.check(data, position)
        if isinstance(data, memoryview):
            data = data.toreadonly()  # `kio` takes nothing else
        return self._read(data, position)[0]

    def response_to(self, correlation_id: int, entity: Any) -> bytes:
        buffer = BytesIO()
        buffer.write(correlation_id.to_bytes(4, signed=True))
        if self._has_response_tags:
            buffer.write(b"\0")
        self._encode(entity, buffer.write)
        body = buffer.getvalue()
        return len(body).to_bytes(4) + body


def load_schema(api: Api, version: int, *, is_exact: bool = False) -> Schema:
    """Load the messages of a request; blocks, the first time for a tenth of a second."""
    with without_hypothesis():
        return Schema(api, version, is_exact=is_exact)
