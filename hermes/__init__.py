"""Hermes: a publish/subscribe log for Python that speaks Kafka's protocol, old and new.

The layers, lowest first: `errors`, `interfaces`, `config` and `plugins`, `protocol`, `listening`
and `logs`, `storage` and `coordination`; above them `broker` and `client`, which never import each
other; above `client`, `aio` and `spark`; at the top `cli`, `tap` and `testing`. ARCHITECTURE.md
explains why.

The client's public names are importable from here. They are loaded on first use, so that a broker
never imports the client.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hermes._version import __version__

if TYPE_CHECKING:
    from hermes.client import (
        EARLIEST,
        LATEST,
        FetchRequest,
        Message,
        MessageAndOffset,
        MessageSet,
        MetricsCollector,
        Producer,
        ProducerConfig,
        ProducerData,
        RecordData,
        RecordSet,
        SimpleConsumer,
    )
    from hermes.client.groups import Consumer, ConsumerConfig
    from hermes.client.retrying import RecordRetries, RetryingConsumer, RetryMessage
    from hermes.errors import HermesError

__all__ = [
    "EARLIEST",
    "LATEST",
    "Consumer",
    "ConsumerConfig",
    "FetchRequest",
    "HermesError",
    "Message",
    "MessageAndOffset",
    "MessageSet",
    "MetricsCollector",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "RecordData",
    "RecordRetries",
    "RecordSet",
    "RetryMessage",
    "RetryingConsumer",
    "SimpleConsumer",
    "__version__",
]

# Names that aren't in the client's own namespace, since not everybody uses ZooKeeper.
_HOMES = {
    "Consumer": "hermes.client.groups",
    "ConsumerConfig": "hermes.client.groups",
    "RecordRetries": "hermes.client.retrying",
    "RetryMessage": "hermes.client.retrying",
    "RetryingConsumer": "hermes.client.retrying",
}


def __getattr__(name: str) -> Any:
    # Every error is available as `hermes.SomeError`; all other names above are the client's.
    if name not in __all__ and not name.endswith("Error"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "hermes.errors" if name.endswith("Error") else _HOMES.get(name, "hermes.client")
    value = getattr(importlib.import_module(home), name, None)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Independent of what has been imported so far.
    return sorted(__all__)
