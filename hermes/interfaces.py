"""Every zope interface of Hermes: what a plugin must provide, and how it is called.

A plugin package imports this module, `hermes.errors` and the values of `hermes.protocol`, and
nothing else from Hermes. It is found through its entry points; docs/plugins.md has a complete one.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from zope.interface import Interface

__all__ = [
    "AuthenticatorSettings",
    "AuthorizerSettings",
    "Disguise",
    "IAuthenticator",
    "IAuthorizer",
    "ICallbackHandler",
    "IDecoder",
    "IEncoder",
    "IEventHandler",
    "IPartitioner",
    "IPayloadObserver",
    "IRetentionPolicy",
    "ITokenVerifier",
    "RetentionSettings",
    "SegmentInfo",
    "TokenHolder",
    "TokenVerifierSettings",
    "User",
    "Verifier",
]


_VERIFIER: Final = re.compile(
    r"(SCRAM-SHA-256|SCRAM-SHA-512)\$([1-9][0-9]{0,8}):([A-Za-z0-9+/=]+)"
    r"\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)"
)


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What a retention policy may know of one segment of a partition's log.

    Attributes:
        base_offset: the offset of the segment's first byte in the partition's log.
        size_bytes: the size of the segment's file.
        last_append_ms: when the last message was appended, in ms since 1970: from the log's own
            time index if there is one, otherwise the modification time of the file. A policy is
            shown none in the future: a segment counts as no newer than the one after it, or now.
        active: True for the last segment only, the one being appended to.
    """

    base_offset: int
    size_bytes: int
    last_append_ms: int
    active: bool


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What broker.yaml says about one topic's retention; passed to the policy's factory.

    Attributes:
        time_ms: keep what was appended within this many ms; None for no limit.
        size_bytes: keep at least this many of the newest bytes; None for no limit.
        options: the topic's `retention_options`, free for third-party policies.
    """

    time_ms: int | None = None
    size_bytes: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class IRetentionPolicy(Interface):
    """Decides which segments at the start of a partition's log may be deleted.

    Entry point group: `hermes.retention`. The entry names a factory that is called with one
    `RetentionSettings` and returns an object that provides this interface. It is called in a
    worker thread, for one partition at a time, and must neither block nor touch files.
    """

    def expired(segments: Any, now_ms: int) -> int:
        """Decide how many segments, counted from the oldest, may be deleted.

        Args:
            segments: a non-empty tuple of `SegmentInfo`, oldest first; the last one is active.
            now_ms: the broker's clock, in ms since 1970.

        Returns:
            0 to len(segments). Only the oldest are deleted, so that the log has no holes. If the
            active segment is included, an empty one at the log end offset replaces it.
        """


class IPartitioner(Interface):
    """Chooses the partition of the messages that a producer sends.

    Entry point group: `hermes.partitioners`. The entry names a factory that is called with the
    producer's `partitioner_options` as keyword arguments. One object serves one producer; several
    threads may call it at the same time, and it must not block.
    """

    def partition(topic: str, key: Any, partition_count: int) -> int:
        """Choose a partition.

        Args:
            topic: where the messages go.
            key: the application's key for them; None for messages without one.
            partition_count: how many partitions the topic has on all brokers, 1 or more.

        Returns:
            0 to partition_count - 1; for anything else sending fails.

        Raises:
            LocalProtocolError: this type of key can't be used; the text says which can.
        """


class IEncoder(Interface):
    """Turns what the application sends into a message's payload.

    Entry point group: `hermes.encoders`, whose objects may provide `IDecoder` as well. The entry
    names a factory that is called with the producer's `encoder_options` as keyword arguments.
    Several threads may call one object at the same time.
    """

    def encode(topic: str, value: Any) -> bytes:
        """Encode one value.

        Args:
            topic: where the message goes; some encodings depend on it.
            value: what the application sent; must not be modified.

        Returns:
            The payload.

        Raises:
            EncodingError: the value can't be encoded; the text has its type and what was
                expected. The producer wraps other exceptions in this one.
        """


class IDecoder(Interface):
    """Turns a message's payload back into a value: the inverse of `IEncoder`.

    Entry point group: `hermes.encoders`: an encoder and its decoder are one plugin.
    """

    def decode(topic: str, payload: bytes) -> Any:
        """Decode one payload.

        Args:
            topic: where the message came from.
            payload: the message's payload.

        Returns:
            The value, equal to the one that was encoded.

        Raises:
            EncodingError: the payload doesn't have this encoding.
        """


class ICallbackHandler(Interface):
    """Observes, and may change, what passes through an asynchronous producer.

    Entry point group: `hermes.callback_handlers`. The entry names a factory that is called with
    the producer's `callback_handler_options` as keyword arguments. `before_enqueue` and
    `after_enqueue` run in the application's threads, all others in the producer's sender thread;
    a slow hook slows its thread down. An exception from a hook is logged and counted; no message
    is lost by it, and the sender continues.

    Items are `hermes.client.ProducerData`; a batch is a sequence of them.

    With a handler, `flush` and `close` of the producer raise no DeliveryError, since the handler
    is told of all failures; unless it has an attribute `reports_failures` that is False.
    """

    def before_enqueue(item: Any) -> Any:
        """Return the item to queue: this one, another one, or None to drop it."""

    def after_enqueue(item: Any, accepted: bool) -> None:
        """Called after queueing; an item that wasn't accepted found the queue full."""

    def after_dequeue(batch: Any) -> Any:
        """Return the items to send, in order: the batch itself, or a list of items.

        The item at a position determines the outcome of the handle of the batch's item at that
        position: None removes it (its handle fails, and it counts as dropped), another item is sent
        instead. An item of the batch itself keeps its handle at any position; other items beyond
        the batch's length are sent, counted and passed to `after_send` and `on_failure`, but have
        no handle.
        """

    def before_send(batch: Any) -> None:
        """Called before the batch goes to its event handler."""

    def after_send(batch: Any, results: Any) -> None:
        """Called after the batch was sent; results has one `SendResult` per item."""

    def on_failure(batch: Any, error: Any) -> None:
        """Called with items that failed for good, and the exception."""

    def on_close() -> None:
        """Called when the producer closes; the last call."""


class IPayloadObserver(Interface):
    """What a callback handler may provide besides: it sees payloads, not only values.

    All methods but `on_open` run in the producer's sender thread. An exception from one is logged
    and counted; the payloads are sent as they were.
    """

    def on_open(config: Any) -> None:
        """Called once, when the producer is made, with its `hermes.client.ProducerConfig`."""

    def after_encode(topic: str, payloads: Any) -> Any:
        """Return the payloads to send: these, or as many others.

        Args:
            topic: where they go.
            payloads: a list of bytes: the encoded values of one item.
        """

    def after_outcomes(sent: Any) -> None:
        """Called when payloads have been sent, or failed.

        Args:
            sent: a list of (topic, payloads, outcome): once each of what `after_encode` returned
                and was to be sent, with a `SendResult`, whose offset is None without
                acknowledgement, or an exception.
        """


class IEventHandler(Interface):
    """Replaces how a producer encodes, partitions and sends a batch.

    Entry point group: `hermes.event_handlers`. The entry names a factory that is called with the
    producer's `event_handler_options` as keyword arguments. One thread at a time calls it.
    """

    def handle(batch: Any, default: Any) -> Any:
        """Handle a batch.

        Args:
            batch: a non-empty sequence of `hermes.client.ProducerData`.
            default: the built-in handling: takes a batch, returns the same results; call it with
                what is left to send, or not at all.

        Returns:
            One `SendResult` or exception per item of the batch, in order.

        Raises:
            Exception: the whole batch failed; its items are reported as failed with it.
        """

    def close() -> None:
        """Release the handler's resources; the last call."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What proves that somebody knows a password, and can't be turned back into it (RFC 5802).

    Attributes:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        iterations: of PBKDF2, 4,096 or more.
        salt: 12 bytes or more.
        stored_key: as long as the mechanism's hash.
        server_key: the same.
    """

    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """Read one as PostgreSQL writes it: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.

        Raises:
            ValueError: it isn't one; the text has nothing of it.
        """
        match = _VERIFIER.fullmatch(text)
        if match is None:
            raise ValueError("expected a verifier of SCRAM, as PostgreSQL writes it")
        try:
            salt, stored_key, server_key = (
                b64decode(each, validate=True) for each in match.groups()[2:]
            )
        except ValueError:
            raise ValueError("salt or keys are not base64") from None
        return cls(match[1], int(match[2]), salt, stored_key, server_key)

    @property
    def text(self) -> str:
        """As PostgreSQL would write it."""
        parts = (self.salt, self.stored_key, self.server_key)
        salt, stored_key, server_key = (b64encode(each).decode() for each in parts)
        return f"{self.mechanism}${self.iterations}:{salt}${stored_key}:{server_key}"


@dataclass(frozen=True, slots=True)
class User:
    """A user known to an authenticator.

    Attributes:
        name: under which access rules have them.
        verifiers: up to one for each mechanism; none for somebody who has no password, because a
            certificate says who they are.
        groups: those that they belong to, for access rules.
    """

    name: str
    verifiers: tuple[Verifier, ...] = ()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Disguise:
    """Parameters for unknown user names, so that they look like real users.

    Attributes:
        secret: 32 random bytes that stay the same; the salts of unknown names derive from it. New
            salts each time would reveal that there is no such user.
        iterations: as most users have.
        salt_bytes: likewise, 12 to 32.
    """

    secret: bytes = field(repr=False)
    iterations: int
    salt_bytes: int = 16


@dataclass(frozen=True, slots=True)
class AuthenticatorSettings:
    """What broker.yaml says about an authenticator; passed to its factory.

    Attributes:
        users_file: the configured path, if any.
        options: `authenticator_options`, free for third parties. There may be secrets in it.
    """

    users_file: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class IAuthenticator(Interface):
    """Looks up users. The broker does the authentication itself (SCRAM, delays, the log).

    Entry point group: `hermes.authenticators`. The entry names a factory that is called with one
    `AuthenticatorSettings` and returns an object that provides this interface. All its methods are
    called in worker threads, several at once; they may take their time, but a client waits for
    `find`, and is given up after ten seconds.
    """

    def find(name: str) -> Any:
        """Look a user up.

        Args:
            name: as a client gave it, after SASLprep; or one that was found before.

        Returns:
            The `User`, or None if there is none of that name. This must not take longer for the one
            than for the other: it would tell strangers which users there are.

        Raises:
            Exception: users can't be looked up now. The client is refused, and may try again.
        """

    def disguise() -> Any:
        """Tell what names look like that nobody has: a `Disguise`."""

    def revision() -> Any:
        """Tell whether users may have changed since.

        Asked once a second. When the answer isn't equal to the last one, all users that are
        connected are looked up again: those that are gone, or have other verifiers, are
        disconnected.

        Returns:
            Anything that can be compared; None if that can't be told: then connected users are
            looked up once a minute.
        """


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whose a bearer token is.

    Attributes:
        name: under which access rules have them.
        groups: those that they belong to, for access rules.
        life_seconds: for how long it is valid, from now on.
    """

    name: str
    groups: frozenset[str]
    life_seconds: float


@dataclass(frozen=True, slots=True)
class TokenVerifierSettings:
    """What broker.yaml says about a verifier of tokens; passed to its factory.

    Attributes:
        options: `token_verifier_options`, free for third parties. There may be secrets in it.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class ITokenVerifier(Interface):
    """Says whose a bearer token is, for Kafka's clients (SASL/OAUTHBEARER).

    Entry point group: `hermes.token_verifiers`. The entry names a factory that is called with one
    `TokenVerifierSettings` and returns an object that provides this interface.
    """

    def verify(token: str) -> Any:
        """Check a token.

        Called in worker threads, two at once; a client is given up after ten seconds.

        Args:
            token: as the client gave it; nothing is known of it.

        Returns:
            The `TokenHolder`. The connection ends with the token's life, unless the client shows
            another one of the same holder before.

        Raises:
            NotAuthenticatedError: it isn't valid; the client and the log are told the text, which
                must have nothing of the token.
            Exception: that can't be told now; the client may try again.
        """


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """What broker.yaml says about an authorizer; passed to its factory.

    Attributes:
        rules: the rules under `access`, as `hermes.security.AccessRule`s; None if there is no such
            setting. When it changes in a running broker, the factory is called again.
        options: `authorizer_options`, free for third parties. There may be secrets in it.
    """

    rules: tuple[Any, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class IAuthorizer(Interface):
    """Decides who may do what.

    Entry point group: `hermes.authorizers`. The entry names a factory that is called with one
    `AuthorizerSettings` and returns an object that provides this interface. Its methods are called
    in the broker's reactor thread and in others, several at once, for every request: they must not
    block. One that consults a server does so in its own thread, answers from its cache,
    and changes its revision after an update. Whatever an authorizer raises, the request is refused.
    """

    def is_allowed(principal: str, groups: Any, operation: str, kind: str, name: str) -> bool:
        """Decide about one operation. What is said is remembered until the revision changes.

        Args:
            principal: who: a user, what a certificate says, or `anonymous`. The broker itself
                may do everything, and isn't asked about.
            groups: a frozenset of the groups of users that the principal is in.
            operation: `produce`, `consume`, `describe`, `create`, `delete`, `group`, `admin` or
                `replicate`.
            kind: what to: a `topic`, a `group`, a `transactional_id`, or the `cluster`.
            name: that of the topic, group or id, which need not exist; empty for the cluster. Peers
                choose it: up to 255 characters of any kind.

        Returns:
            True if it is allowed. Anything else refuses it.
        """

    def revision() -> Any:
        """Tell whether other decisions are made now.

        Returns:
            Anything that can be compared quickly: when it isn't equal to the last one, nothing that
            was said before is remembered.
        """
