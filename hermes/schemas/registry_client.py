"""A client of schema registries, which caches what never changes."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from hermes.errors import ArgumentError, ConfigError, SchemaRegistryError, UnknownSchemaError
from hermes.keywords import explains_keywords
from hermes.quoting import quoted
from hermes.schemas.addresses import parse_addresses
from hermes.schemas.exchanges import Exchanges
from hermes.schemas.registered import (
    RegisteredSchema,
    SchemaReference,
    body_of,
    read_registered,
)
from hermes.schemas.response_cache import ResponseCache
from hermes.security import ClientSecurity

#: How long an id stays unknown before it is requested again: damaged payloads hold any.
_UNKNOWN_SECONDS: Final = 5.0
#: How many unknown ids are kept at most.
_MOST_UNKNOWN: Final = 10_000
#: How many schemas one may refer to, those of others counted.
_MOST_REFERENCES: Final = 1_000


#: A schema: its text, or what JSON makes of that.
SchemaText: TypeAlias = str | Mapping[str, Any] | list[Any]


@explains_keywords
class RegistryClient:
    """A client of a schema registry: Hermes' own, or any with Confluent's REST interface.

    Every method blocks until the response. Any number of threads may use one client; concurrent
    identical requests are sent once. In a forked process it opens its own connections.

    Example:
        registry = RegistryClient("http://localhost:8081")
        schema_id = registry.register("clicks-value", {"type": "record", ...})
        print(registry.by_id(schema_id).text)

    Args:
        url: where the registry listens: `http://localhost:8081`, or with a path, as in
            `http://localhost:9090/registry`; several with commas between them, or a sequence, of
            registries that share their schemas. A user and a password may stand in it
            (`http://user:password@host`).
        timeout_seconds: how long an address may take to accept a connection, and for each step of
            its response.
        retry_seconds: how long a request is retried while no address responds; 0 to try each
            once, None to retry without limit.
        waiting: called with a line for people when a request is first retried, once per
            request.
        tls, tls_ca, tls_certificate, tls_key: as for all clients; the URL alone says whether by
            TLS.
        user, password: for basic authentication, where the URL has none and begins with `https`,
            or is this machine's. Without them, `user:password` in the environment's
            HERMES_REGISTRY_CREDENTIALS.

    Raises:
        ConfigError: the URL is wrong, or one of the other settings.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        timeout_seconds: float = 10.0,
        retry_seconds: float | None = 30.0,
        waiting: Callable[[str], None] = lambda reason: None,
        tls: bool | None = None,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        security = ClientSecurity(
            tls=tls,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            user=user,
            password=password,
        )
        try:
            addresses = parse_addresses(url, "" if user is None else f"{user}:{password}")
        except ValueError as error:
            raise ConfigError("registry", str(error)) from error
        self._exchanges = Exchanges(
            addresses,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            waiting=waiting,
            security=security.check(),
        )
        self._cache = ResponseCache()
        self._unknown: dict[int, float] = {}

    @property
    def name(self) -> str:
        """The addresses, for people: without credentials."""
        return ",".join(map(str, self._exchanges.addresses))

    def close(self) -> None:
        """Close the connections. Idempotent; later requests open new ones."""
        self._exchanges.close()

    # -- schemas that exist ---------------------------------------------------------------------

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Look up the schema of a payload; an unknown id is requested again after some seconds.

        Raises:
            UnknownSchemaError: there is no schema with this id.
            SchemaRegistryError: the registry refused, or its response is malformed.
            RegistryUnavailableError: it can't be reached.
        """
        _check_number("schema_id", schema_id)
        unknown_since = self._unknown.get(schema_id)
        if unknown_since is not None and time.monotonic() - unknown_since < _UNKNOWN_SECONDS:
            raise self._no_such_id(schema_id)
        return self._cache.get(("id", schema_id), lambda: self._request_id(schema_id))

    def _request_id(self, schema_id: int) -> RegisteredSchema:
        try:
            response = self._exchanges.get_from_any(f"/schemas/ids/{schema_id}")
        except UnknownSchemaError as error:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[schema_id] = time.monotonic()
            raise self._no_such_id(schema_id) from error
        return self._read(response, {"id": schema_id})

    def _no_such_id(self, schema_id: int) -> UnknownSchemaError:
        return UnknownSchemaError(
            f"schema registry {self.name} has no schema {schema_id}", status=404, code=40403
        )

    def version(self, subject: str, version: int, *, fresh: bool = False) -> RegisteredSchema:
        """Look up a version of a subject, even a deleted one, as schemas may refer to it.

        Args:
            fresh: bypass the cache: after a subject was deleted for good, version numbers start
                again.

        Raises:
            UnknownSchemaError: there is no such subject or version.
            HermesError: as `by_id`.
        """
        _check_number("version", version, "call latest() for the newest")
        path = f"/subjects/{_quoted(subject)}/versions/{version}?deleted=true"

        def request() -> RegisteredSchema:
            return self._read(self._exchanges.get_from_any(path), {})

        return request() if fresh else self._cache.get(("version", subject, version), request)

    def latest(self, subject: str) -> RegisteredSchema:
        """Look up the latest version of a subject, now.

        Raises:
            UnknownSchemaError: there is no such subject.
            HermesError: as `by_id`.
        """
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        return self._read(self._exchanges.request("GET", path), {})

    def subjects(self) -> list[str]:
        """List the subjects that have a version, now."""
        response = self._exchanges.request("GET", "/subjects")
        if not isinstance(response, list) or not all(isinstance(each, str) for each in response):
            raise self._malformed(response)
        return response

    def versions(self, subject: str) -> list[int]:
        """List the versions of a subject, now.

        Raises:
            UnknownSchemaError: there is no such subject.
        """
        response = self._exchanges.request("GET", f"/subjects/{_quoted(subject)}/versions")
        if not isinstance(response, list) or not all(type(each) is int for each in response):
            raise self._malformed(response)
        return response

    def compatibility(self, subject: str) -> str:
        """Return a subject's current compatibility level: its own, or the global one."""
        # A subject may have settings of its own, and no level among them.
        for path in (f"/config/{_quoted(subject)}?defaultToGlobal=true", "/config"):
            response = self._exchanges.request("GET", path)
            level = response.get("compatibilityLevel") if isinstance(response, dict) else None
            if isinstance(level, str):
                return level
        raise self._malformed(response)

    def texts(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """A schema after all schemas it refers to, in dependency order.

        Raises:
            UnknownSchemaError: one of them isn't there.
            SchemaRegistryError: they refer to each other in a circle, or there are too many.
            HermesError: as `by_id`.
        """
        if not isinstance(schema, RegisteredSchema):
            raise _argument_error("schema", "a RegisteredSchema, as by_id returns it", schema)
        return self._cache.get(
            ("texts", schema.text, schema.references), lambda: self._request_texts(schema)
        )

    def _request_texts(self, schema: RegisteredSchema) -> tuple[str, ...]:
        found: dict[tuple[str, int], str] = {}
        around: list[tuple[str, int]] = []

        def add(references: Sequence[SchemaReference]) -> None:
            for each in references:
                key = (each.subject, each.version)
                if key in found:
                    continue
                if key in around or len(found) + len(around) >= _MOST_REFERENCES:
                    raise SchemaRegistryError(
                        f"version {each.version} of {quoted(each.subject)} stands on itself, or "
                        f"on more than {_MOST_REFERENCES} others"
                    )
                around.append(key)
                referenced = self.version(each.subject, each.version)
                add(referenced.references)
                around.remove(key)
                found[key] = referenced.text

        add(schema.references)
        return (*found.values(), schema.text)

    # -- new schemas ----------------------------------------------------------------------------

    def register(
        self,
        subject: str,
        text: SchemaText,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
    ) -> int:
        """Register a schema as the next version of a subject, unless it is one already.

        Args:
            text: the schema, as text or as what JSON makes of it.
            schema_type: AVRO, JSON or PROTOBUF.

        Returns:
            Its id.

        Raises:
            IncompatibleSchemaError: it doesn't fit the earlier versions; the text says why.
            ArgumentError: an argument is of the wrong type.
            SchemaRegistryError: it is not a schema, or may not be registered.
            RegistryUnavailableError: the registry can't be reached.
        """
        path = f"/subjects/{_quoted(subject)}/versions"
        return self._id_of("register", path, subject, text, schema_type, references)

    def id_of(
        self,
        subject: str,
        text: SchemaText,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
    ) -> int:
        """Look up the id of a schema that is a version of a subject.

        Raises:
            UnknownSchemaError: there is no such subject, or it doesn't have this schema.
            HermesError: as `register`.
        """
        path = f"/subjects/{_quoted(subject)}"
        return self._id_of("id", path, subject, text, schema_type, references)

    def _id_of(
        self,
        what: str,
        path: str,
        subject: str,
        schema: SchemaText,
        schema_type: str,
        references: Sequence[SchemaReference],
    ) -> int:
        text = _text_of(schema)
        body = _checked_body(text, schema_type, references)

        def request() -> int:
            response = self._exchanges.request("POST", path, body)
            number = response.get("id") if isinstance(response, dict) else None
            if type(number) is not int:
                raise self._malformed(response)
            return number

        return self._cache.get((what, subject, text, schema_type, tuple(references)), request)

    def incompatibilities(
        self,
        subject: str,
        text: SchemaText,
        schema_type: str = "AVRO",
        references: Sequence[SchemaReference] = (),
    ) -> list[str]:
        """Check whether a schema would be accepted as the next version, without registering it.

        Returns:
            Why not; empty if it would.

        Raises:
            UnknownSchemaError: there is no such subject.
            HermesError: as `register`.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
        body = _checked_body(_text_of(text), schema_type, references)
        response = self._exchanges.request("POST", path, body)
        if not isinstance(response, dict) or not isinstance(response.get("is_compatible"), bool):
            raise self._malformed(response)
        if response["is_compatible"]:
            return []
        messages = response.get("messages")
        listed = list(map(str, messages)) if isinstance(messages, list) else []
        return listed or ["the registry gives no reason"]

    # -- answers --------------------------------------------------------------------------------

    def _read(self, response: Any, known: Mapping[str, Any]) -> RegisteredSchema:
        try:
            return read_registered({**response, **known})
        except (KeyError, TypeError) as error:
            raise self._malformed(response) from error

    def _malformed(self, response: Any) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"there is no schema registry at {self.name}: it answered {quoted(response)}",
            status=200,
        )


def _quoted(subject: str) -> str:
    if not isinstance(subject, str):
        raise _argument_error("subject", "a str", subject)
    return quote(subject, safe="")


def _text_of(schema: SchemaText) -> str:
    """A schema's text; of what was read from JSON, or would be."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, Mapping | list):
        raise _argument_error("text", "a schema as a str, a dict or a list", schema)
    try:
        return json.dumps(dict(schema) if isinstance(schema, Mapping) else schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"text: it can't be written as JSON: {error}") from None


def _checked_body(
    text: str, schema_type: str, references: Sequence[SchemaReference]
) -> dict[str, Any]:
    if not isinstance(schema_type, str):
        raise _argument_error("schema_type", "AVRO, JSON or PROTOBUF", schema_type)
    is_list = isinstance(references, Sequence) and not isinstance(references, SchemaReference)
    if not is_list or not all(isinstance(each, SchemaReference) for each in references):
        raise _argument_error("references", "a list of SchemaReference", references)
    return body_of(text, schema_type, references)


def _check_number(name: str, value: object, hint: str = "") -> None:
    if type(value) is not int:
        raise _argument_error(name, "a whole number", value, hint)


def _argument_error(name: str, expected: str, value: object, hint: str = "") -> ArgumentError:
    text = f"{name}: expected {expected}, got {quoted(value)} ({type(value).__name__})"
    return ArgumentError(f"{text}; {hint}" if hint else text)
