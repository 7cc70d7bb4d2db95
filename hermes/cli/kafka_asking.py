"""Asks brokers in Kafka's protocol, one request after the other: for tools, not for streams."""

import socket
from dataclasses import MISSING, fields
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from types import TracebackType
from typing import Any, Final

from hermes.errors import ClientError
from hermes.kafka.schemas import without_hypothesis
from hermes.quoting import quoted

_MOST_BYTES: Final = 64 * 1024 * 1024


class KafkaAsker:
    """A connection to one broker's `kafka_listen`.

    Args:
        host: its host.
        port: its port.
        timeout_seconds: of connecting, and of each answer.

    Raises:
        ClientError: it can't be reached.
    """

    def __init__(self, host: str, port: int, timeout_seconds: float = 30.0) -> None:
        self._where = f"{host}:{port}"
        self._number = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds)
        except OSError as error:
            raise ClientError(f"can't connect to {quoted(self._where)}: {error}") from error

    def __enter__(self) -> "KafkaAsker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """Send a request and wait for its answer.

        Args:
            name: of the request, for instance `ListGroups`.
            version: in which version it is sent.
            values: its fields. Entries of lists are dicts, or tuples of them.

        Returns:
            The answer, as `kio` has it.

        Raises:
            ClientError: there is none.
        """
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")
        package = f"kio.schema.{snake}.v{version}"
        try:
            with without_hypothesis():
                from kio.serial import entity_reader, entity_writer

                module = import_module(f"{package}.request")
                response = import_module(f"{package}.response")
        except ImportError as error:
            raise ClientError(
                "to ask brokers in Kafka's protocol takes the package kio: "
                "pip install 'hermes-log[kafka]'"
            ) from error
        request_type = getattr(module, f"{name}Request")
        response_type = getattr(response, f"{name}Response")
        self._number += 1
        header_type = request_type.__header_schema__
        known = {
            "request_api_key": request_type.__api_key__,
            "request_api_version": version,
            "correlation_id": self._number,
            "client_id": "hermes",
        }
        names = {each.name for each in fields(header_type)}
        header = header_type(**{key: value for key, value in known.items() if key in names})
        buffer = BytesIO()
        entity_writer(header_type)(buffer, header)
        entity_writer(request_type)(buffer, _made(module, request_type, values))
        body = buffer.getvalue()
        answer = self._exchange(len(body).to_bytes(4) + body)
        _, position = entity_reader(response_type.__header_schema__)(answer, 0)
        entity, _ = entity_reader(response_type)(answer, position)
        return entity

    def _exchange(self, frame: bytes) -> bytes:
        try:
            self._socket.sendall(frame)
            size = int.from_bytes(self._receive(4))
            if size > _MOST_BYTES:
                raise ClientError(f"{self._where} answers with {size} bytes: is that Kafka's port?")
            return self._receive(size)
        except OSError as error:
            raise ClientError(f"{self._where} does not answer: {error}") from error

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(min(count - len(data), 1 << 20))
            if not more:
                raise ClientError(f"{self._where} has closed the connection: is it Kafka's port?")
            data += more
        return bytes(data)


def _made(module: Any, kind: Any, values: dict[str, Any]) -> Any:
    """Make a message out of its fields; those that the version doesn't have are dropped."""
    made = {}
    for each in fields(kind):
        if each.name not in values:
            if each.default is MISSING and each.default_factory is MISSING:
                made[each.name] = _nothing(str(each.type))
            continue
        value = values[each.name]
        if isinstance(value, int) and "Timedelta" in str(each.type):
            value = timedelta(milliseconds=value)
        if isinstance(value, list | tuple):
            value = tuple(_entry(module, str(each.type), entry) for entry in value)
        made[each.name] = value
    return kind(**made)


def _nothing(annotation: str) -> Any:
    """What a field has that isn't given."""
    if "None" in annotation:
        return None
    return False if "bool" in annotation else () if "tuple" in annotation else ""


def _entry(module: Any, annotation: str, entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    name = annotation.removeprefix("tuple[").partition(",")[0].strip()
    name = name.rpartition(".")[2]
    return _made(module, getattr(module, name), entry)
