"""Explains unknown keyword arguments, also by the names of Kafka's clients.

One decorator for all public constructors and configurations. It keeps their types, so that a type
checker finds the same mistakes, and costs a correct call next to nothing.

Source of the foreign names: the documentation of kafka-python, confluent-kafka and Kafka itself;
dots are written as underscores.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from hermes.errors import ArgumentError
from hermes.quoting import quoted

_Made = TypeVar("_Made", bound=Callable[..., Any])

_BROKERS: Final = ("broker_list", "brokers", "host", "url")
_SEND: Final = ("messages", "value")

_MOST_LISTED: Final = 12

#: What others call a setting; of several of ours, the first that is there is meant.
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("address", "bootstrap_server", "bootstrap_servers", "broker", "broker_list", "brokers",
         "host", "hosts", "metadata_broker_list", "server", "servers", "url"),
        _BROKERS,
    ),
    "auto_commit_interval_ms": ("auto_commit_interval",),
    "batch_num_messages": ("batch_size",),
    "buffer_memory": ("queue_bytes",),
    "client_id": ("consumer_id",),
    "compression_codec": ("compression",),
    "compression_type": ("compression",),
    "consumer_timeout_ms": ("consumer_timeout",),
    "data": _SEND,
    "delivery_timeout_ms": ("delivery_timeout",),
    "enable_auto_commit": ("auto_commit",),
    "fetch_max_bytes": ("prefetch_bytes", "max_fetch_bytes"),
    "fetch_max_wait_ms": ("fetch_wait",),
    "fetch_message_max_bytes": ("fetch_bytes",),
    "fetch_wait_max_ms": ("fetch_wait",),
    "group_id": ("group",),
    "group_instance_id": ("consumer_id",),
    "group_name": ("group",),
    "linger_ms": ("queue_time",),
    "max_block_ms": ("enqueue_timeout",),
    "max_partition_fetch_bytes": ("fetch_bytes",),
    "max_request_size": ("max_message_bytes",),
    "message": _SEND,
    "message_max_bytes": ("max_message_bytes",),
    "message_send_max_retries": ("num_retries",),
    "message_timeout_ms": ("delivery_timeout",),
    "metadata_max_age_ms": ("metadata_max_age",),
    "payload": _SEND,
    "queue_buffering_max_messages": ("queue_size",),
    "queue_buffering_max_ms": ("queue_time",),
    "request_required_acks": ("acks",),
    "request_timeout_ms": ("timeout_seconds", "timeout"),
    "retries": ("num_retries",),
    "retry_backoff_ms": ("retry_backoff",),
    "sasl_password": ("password",),
    "sasl_plain_password": ("password",),
    "sasl_plain_username": ("user",),
    "sasl_username": ("user",),
    "security_protocol": ("tls",),
    "serializer": ("encoder",),
    "session_timeout_ms": ("zookeeper_session_timeout",),
    "socket_timeout_ms": ("timeout_seconds", "timeout"),
    "ssl_ca_location": ("tls_ca",),
    "ssl_cafile": ("tls_ca",),
    "ssl_certfile": ("tls_certificate",),
    "ssl_certificate_location": ("tls_certificate",),
    "ssl_key_location": ("tls_key",),
    "ssl_keyfile": ("tls_key",),
    "username": ("user",),
    "value": _SEND,
    "value_deserializer": ("decoder",),
    "value_serializer": ("encoder",),
    "zk": ("zookeeper_connect",),
    "zookeeper": ("zookeeper_connect",),
}  # fmt: skip

#: What Hermes has no setting for, and what it has instead.
_INSTEAD: Final[Mapping[str, str]] = {
    "callback": "use the add_done_callback of what send returns, or a callback_handler",
    "client_id": "a broker knows its clients by address and user",
    "enable_idempotence": "Kafka's clients have it: docs/kafka.md",
    "isolation_level": "only what was committed of transactions is read, always",
    "key_deserializer": "a message's key is bytes",
    "key_serializer": "a key is stored as bytes, a string as UTF-8",
    "on_delivery": "use the add_done_callback of what send returns, or a callback_handler",
    "sasl_mechanism": "with user and password it is SCRAM",
    "timestamp": "give the message as RecordData(value, timestamp_ms=...)",
    "timestamp_ms": "give the message as RecordData(value, timestamp_ms=...)",
    "topic": "topics are named where messages are sent, fetched, or streams created",
    "topics": "topics are named where messages are sent, fetched, or streams created",
    "transactional_id": "Kafka's clients have them: docs/kafka.md",
}


def explains_keywords(made: _Made) -> _Made:
    """Decorate a class or a function that applications call with settings.

    Example:
        @explains_keywords
        @dataclass(frozen=True, kw_only=True)
        class ProducerConfig: ...

    The error is an ArgumentError, and so a TypeError as well.
    """
    if isinstance(made, type):
        # Not a class of its own around it: that would be in the way of subclasses and of `slots`.
        cast(Any, made).__init__ = _explained(cast(Any, made).__init__, made)
        return made
    return cast(_Made, _explained(made, None))


def refuse_keywords(call: str, known: Iterable[str], unknown: Iterable[str]) -> ArgumentError:
    """Make the error for unknown keyword arguments.

    Args:
        call: what was called, as in `Producer.send`.
        known: the valid names.
        unknown: at least one.
    """
    names = tuple(known)
    return ArgumentError(f"{call}: {_about(next(iter(unknown)), names, {})}")


def _explained(function: Callable[..., Any], made: type | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        try:
            return function(*args, **settings)
        except TypeError:
            error = _explanation(function, made, args, settings)
            if error is None:
                raise
        raise error

    return call


def _explanation(
    function: Callable[..., Any],
    made: type | None,
    args: tuple[Any, ...],
    settings: Mapping[str, Any],
) -> ArgumentError | None:
    """What was wrong with a call's arguments; None when its TypeError has another cause."""
    parameters = inspect.signature(function).parameters
    call = function.__name__ if made is None else type(args[0]).__name__
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    named = [
        name
        for name, each in parameters.items()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ][made is not None :]
    inner = {
        each.annotation: list(inspect.signature(each.annotation).parameters)
        for each in parameters.values()
        if isinstance(each.annotation, type) and hasattr(each.annotation, "__dataclass_fields__")
    }
    for name in settings:
        if name not in parameters and (not is_open or _meant(name, named)):
            return ArgumentError(f"{call}: {_about(name, named, inner)}")
    takes_places = any(
        parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY for name in named
    )
    if named and not takes_places and len(args) > (made is not None):
        example = next((name for name in _BROKERS if name in named), named[0])
        return ArgumentError(f"{call}: give settings by name, as in {call}({example}=...)")
    return None


def _about(name: str, known: Iterable[str], inner: Mapping[type, list[str]]) -> str:
    text = f"there is no {quoted(name)}"
    names = list(known)
    meant = _meant(name, names)
    if meant is not None:
        return f"{text}; did you mean {meant!r}?"
    for config, its in inner.items():
        found = name if name in its else _meant(name, its)
        if found is not None:
            return f"{text}; settings stand in its {config.__name__}({found}=...)"
    instead = _INSTEAD.get(_plain(name))
    if instead is not None:
        return f"{text}: {instead}"
    close = difflib.get_close_matches(_plain(name), names, n=1)
    if close:
        return f"{text}; did you mean {close[0]!r}?"
    if len(names) > _MOST_LISTED:
        return f"{text}: docs/client-settings.md has all that there are"
    return f"{text}; there are {', '.join(names)}"


def _meant(name: str, known: Iterable[str]) -> str | None:
    """The setting that others call so, or that differs by dots or upper case."""
    names = set(known)
    plain = _plain(name)
    return next((each for each in (plain, *_SAME.get(plain, ())) if each in names), None)


def _plain(name: str) -> str:
    return name.lower().replace(".", "_").replace("-", "_")
