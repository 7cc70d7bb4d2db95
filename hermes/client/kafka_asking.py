"""Asks brokers in Kafka's protocol, one request after the other: for tools, not for streams.

The connection is that of Hermes' own clients, with its TLS, its times and its errors: both
protocols put an answer's size before it. Only who asks is said in Kafka's way, by SASL.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import Any, Final, TypeVar

from hermes.client.authenticating import Authentication
from hermes.client.connection import BrokerConnection
from hermes.client.conversations import Exchange
from hermes.errors import (
    BrokerNotReachedError,
    BrokerUnavailableError,
    ClientError,
    RemoteProtocolError,
)
from hermes.extras import install_command
from hermes.protocol import Buffer
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.protocol.kafka_sasl import advance, prove_identity
from hermes.protocol.kio_messages import import_messages, without_hypothesis
from hermes.security import PLAIN, ClientSecurity

_Answer = TypeVar("_Answer")

_MOST_BYTES: Final = 64 * 1024 * 1024


class KafkaAsker:
    """A connection to one broker's `kafka_listen`, made with the first request.

    `timeout_seconds` bounds connecting, and each answer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_seconds: float = 30.0,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._number = 0
        self._connection = BrokerConnection(
            host,
            port,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=timeout_seconds,
            max_response_bytes=_MOST_BYTES,
            security=security,
            authenticate=authenticate,
        )

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
        self._connection.close()

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """Send a request, `ListGroups` for instance, and return its response as `kio` has it.

        Entries of lists are dicts, or tuples of them. ClientError, also if the user is refused.
        """
        request, decode = encoded_request(name, version, self._number + 1, values)
        return self._call(request, decode)

    def ask_encoded(
        self, request: KafkaRequest, decode: Callable[[memoryview], _Answer]
    ) -> _Answer:
        """Send a request; `decode` makes of its response's body what is returned."""
        number = self._number + 1
        return self._call(
            request.encode(number), lambda answer: decode(request.response_body(answer, number))
        )

    def _call(self, request: bytes, decode: Callable[[Buffer], _Answer]) -> _Answer:
        self._number += 1
        try:
            return self._connection.call(request, decode)
        except BrokerNotReachedError:
            raise
        except BrokerUnavailableError as error:
            raise BrokerUnavailableError(
                f"{error} (is it a port of kafka_listen, and does it want TLS or a user?)"
            ) from error
        except RemoteProtocolError as error:
            raise ClientError(str(error)) from error


def authenticate(security: ClientSecurity, address: str) -> Authentication[None]:
    """As `hermes.client.authenticating.authenticate`, by SASL's SCRAM."""
    talk = prove_identity(security, address)
    request = advance(talk, None)
    while request is not None:
        body = yield Exchange(request.encode(0), partial(_copied, request), repeatable=False)
        request = advance(talk, body)


def _copied(request: KafkaRequest, response: Buffer) -> bytes:
    return bytes(request.response_body(response, 0))


def encoded_request(
    name: str, version: int, number: int, values: dict[str, Any]
) -> tuple[bytes, Callable[[Buffer], Any]]:
    """A request that has this number, and what decodes its response; as `KafkaAsker.ask`."""
    try:
        with without_hypothesis():
            from kio.serial import entity_reader, entity_writer

            module, response = import_messages(name, version)
    except ImportError as error:
        raise ClientError(
            f"to ask brokers in Kafka's protocol takes the package kio: {install_command('kafka')}"
        ) from error
    request_type = getattr(module, f"{name}Request")
    response_type = getattr(response, f"{name}Response")
    buffer = BytesIO()
    entity_writer(request_type)(buffer, _made(module, request_type, values))
    request = KafkaRequest(
        request_type.__api_key__, version, buffer.getvalue(), request_type.__flexible__
    )

    def decode(answer: Buffer) -> Any:
        try:
            body = request.response_body(answer, number)
            return entity_reader(response_type)(bytes(body), 0)[0]
        except Exception as error:  # kio has many
            raise RemoteProtocolError(f"the answer to {name} can't be read: {error}") from error

    return request.encode(number), decode


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
        if isinstance(value, dict):
            value = _made(module, each.type, value)
        if isinstance(value, list | tuple):
            value = tuple(_entry(module, str(each.type), entry) for entry in value)
        made[each.name] = value
    return kind(**made)


def _nothing(annotation: str) -> Any:
    if "None" in annotation:
        return None
    return False if "bool" in annotation else () if "tuple" in annotation else ""


def _entry(module: Any, annotation: str, entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    name = annotation.removeprefix("tuple[").partition(",")[0].strip()
    name = name.rpartition(".")[2]
    return _made(module, getattr(module, name), entry)
