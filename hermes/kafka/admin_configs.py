"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs: settings under Kafka's names.

A topic's can be changed. A broker's are only shown, but for how fast it makes copies: they change
in its broker.yaml.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import chain
from typing import Any, Final

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.replica_placing import copies_of
from hermes.config.broker import BrokerConfig
from hermes.coordination.throttles import Throttle
from hermes.errors import ConfigError, HermesError
from hermes.kafka.broker_configs import broker_configs
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.throttle_configs import alter_broker, throttle_configs
from hermes.kafka.topic_configs import (
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    ConfigValue,
    topic_configs,
    topic_setting,
)
from hermes.protocol import check_kafka_topic_name
from hermes.protocol.kafka_errors import (
    Code,
    KafkaError,
    error_fields,
    invalid_request,
    unknown_topic,
)
from hermes.security import Operation, Resource

#: Kafka's kinds of what has settings.
_TOPIC: Final = 2
_BROKER: Final = 4

#: What else has settings in Kafka.
_OTHERS: Final = {8: "a broker's loggers", 16: "clients' metrics", 32: "a consumer group"}

#: Of these settings in ms a broker of Kafka's has no default: those in hours or messages have one.
_WITHOUT_DEFAULT: Final = frozenset({"flush.ms", "retention.ms", "segment.ms"})


#: Of a request's entry what is to be set of a topic, and what reset.
_ChangesOf = Callable[[Any, ClusterTopic, BrokerConfig], tuple[dict[str, str], set[str]]]


class _Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# -- DescribeConfigs ----------------------------------------------------------------------------


async def describe_configs(request: Any, call: Call) -> Any:
    call.is_large = len(request.resources) * len(TOPIC_CONFIGS) > LARGE_ENTRIES
    # Once each, however often it is named: each has dozens of settings.
    wanted = {(each.resource_type, each.resource_name): each for each in request.resources}
    results = []
    for each in wanted.values():
        await call.after_entry()
        results.append(_described(each, request, call))
    return call.make.DescribeConfigsResponse(results=tuple(results))


def _described(asked: Any, request: Any, call: Call) -> Any:
    fields, values = error_fields(), list[ConfigValue]()
    try:
        values = list(_values(asked.resource_type, asked.resource_name, call))
    except HermesError as error:
        fields = error_fields(error)
    keys = asked.configuration_keys
    has_docs = getattr(request, "include_documentation", False)
    return call.make.DescribeConfigsResult(
        **fields,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=tuple(
            _shown(each, call, request.include_synonyms, has_docs)
            for each in values
            if not keys or each.row.name in keys
        ),
    )


def _values(kind: int, name: str, call: Call) -> Iterable[ConfigValue]:
    """The settings of a resource in a request; KafkaError if the client may not see it."""
    shared = call.server.shared
    if kind == _TOPIC:
        if not call.permits_topic(Operation.DESCRIBE, name):
            raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        found = call.server.topics.get(name)
        if found is None:
            check_kafka_topic_name(name)
            raise unknown_topic()
        return topic_configs(shared.config, name, copies_of(found)[0])
    if kind != _BROKER:
        raise _unsupported(kind)
    call.check_admin()
    _check_broker(name, call)
    topics, own = call.server.topics, shared.config.broker_id
    rates = throttle_configs(topics.throttles.get(own, Throttle()))
    return chain(broker_configs(shared.config, topics.listeners()), rates) if name else ()


def _check_broker(name: str, call: Call) -> None:
    own = call.server.shared.config.broker_id
    if name not in ("", str(own)):
        raise invalid_request(
            f"Unexpected broker id, expected {own} or empty string, but received {name}"
        )


def _shown(each: ConfigValue, call: Call, has_synonyms: bool, has_docs: bool) -> Any:
    make, row = call.make, each.row
    synonyms: list[tuple[str, str, ConfigSource]] = []
    if has_synonyms:
        if each.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER):
            synonyms.append((row.name, each.value, each.source))
        value, source = each.default
        if source is not ConfigSource.DEFAULT or row.name not in _WITHOUT_DEFAULT:
            synonyms.append((row.broker or row.name, value, source))
    return make.DescribeConfigsResourceResult(
        name=row.name,
        value=each.value,
        read_only=each.is_read_only,
        is_default=each.source is ConfigSource.DEFAULT,
        config_source=each.source,
        is_sensitive=False,
        synonyms=tuple(
            make.DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ),
        config_type=row.type,
        documentation=row.doc if has_docs else None,
    )


# -- changes ------------------------------------------------------------------------------------


async def change_configs(request: Any, call: Call) -> Any:
    """Set and reset single settings of topics."""
    results = await _altered(request, call, _incremental)
    return call.make.IncrementalAlterConfigsResponse(responses=results)


async def alter_configs(request: Any, call: Call) -> Any:
    """Replace all that is set for topics: what isn't named is reset."""
    results = await _altered(request, call, _replacing)
    return call.make.AlterConfigsResponse(responses=results)


def _incremental(
    asked: Any, topic: ClusterTopic, config: BrokerConfig
) -> tuple[dict[str, str], set[str]]:
    given: dict[str, str] = {}
    reset: set[str] = set()
    for each in asked.configs:
        name, change = each.name, each.config_operation
        if change != _Change.DELETE and each.value is None:
            raise invalid_request(f"Null value not supported for : {name}")
        if change == _Change.DELETE:
            row = TOPIC_CONFIGS.get(name)
            reset.add("" if row is None else row.key)  # as Kafka: what isn't there is reset
        elif change == _Change.SET:
            given |= topic_setting(name, each.value)
        elif change in (_Change.APPEND, _Change.SUBTRACT):
            given |= _changed_list(name, each.value, change, topic_configs(config, topic.name))
        else:
            raise invalid_request(f"Unknown operation {change} on {name}")
    return given, reset - {""}


def _changed_list(
    name: str, value: str, change: int, values: Iterable[ConfigValue]
) -> dict[str, str]:
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise ConfigError("", f"Unknown topic config name: {name}")
    word = _Change(change).name
    if row.type is not ConfigType.LIST:
        raise ConfigError("", f"Can't {word} to key {name} because its type is not LIST.")
    now = next(each.value.split(",") if each.value else [] for each in values if each.row is row)
    named = [each.strip() for each in value.split(",")]
    if change == _Change.APPEND:
        now += [each for each in named if each not in now]
    else:
        now = [each for each in now if each not in named]
    return topic_setting(name, ",".join(now))


def _replacing(asked: Any, *_: object) -> tuple[dict[str, str], set[str]]:
    given: dict[str, str] = {}
    for each in asked.configs:
        given |= topic_setting(each.name, each.value)
    return given, {row.key for row in TOPIC_CONFIGS.values() if row.key} - given.keys()


async def _altered(request: Any, call: Call, changes_of: _ChangesOf) -> tuple[Any, ...]:
    call.is_large = len(request.resources) > LARGE_ENTRIES
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    results = []
    for asked in request.resources:
        await call.after_entry()
        fields = error_fields()
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                raise invalid_request("Each resource must appear at most once.")
            if asked.resource_type == _BROKER and changes_of is _incremental:
                await alter_broker(asked, call, is_check=request.validate_only)
            else:
                await _alter_topic(asked, changes_of, call, is_check=request.validate_only)
        except HermesError as error:
            fields = error_fields(error)
        results.append(
            call.make.AlterConfigsResourceResponse(
                **fields,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return tuple(results)


async def _alter_topic(asked: Any, changes_of: _ChangesOf, call: Call, *, is_check: bool) -> None:
    topic = _to_alter(asked, call)
    given, reset = changes_of(asked, topic, call.server.shared.config)
    if is_check:
        call.server.topic_changes.check_alter(topic, given, reset)
    else:
        await call.server.topic_changes.alter(topic, given, reset, call.client)


def _to_alter(asked: Any, call: Call) -> ClusterTopic:
    """Find the topic whose settings are to be changed; KafkaError if the client may not."""
    kind, name = asked.resource_type, asked.resource_name
    if kind == _BROKER:
        call.check_admin()
        _check_broker(name, call)
        raise invalid_request("The settings of a broker are those of its broker.yaml.")
    if kind != _TOPIC:
        raise _unsupported(kind)
    if not call.permits(Operation.ADMIN, Resource.topic(name)):
        raise KafkaError(Code.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    found = call.server.topics.get(name)
    if found is None:
        if not name:
            raise invalid_request("Default topic resources are not allowed.")
        check_kafka_topic_name(name)
        raise unknown_topic()
    if any(n > 1 for n in Counter(each.name for each in asked.configs).values()):
        raise invalid_request("Error due to duplicate config keys")
    return found


def _unsupported(kind: int) -> KafkaError:
    what = f" ({_OTHERS[kind]})" if kind in _OTHERS else ""
    return invalid_request(
        f"Unsupported resource type: {kind}{what}; only topics and brokers have settings here."
    )
