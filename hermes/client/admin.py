"""What operators ask of a broker, as conversations: to create, alter, reload, describe."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from hermes.client.arguments import check_number, check_topic
from hermes.client.conversations import Conversation, Exchange, needs
from hermes.config.kinds import MAX_PARTITIONS
from hermes.errors import ConfigError, RemoteProtocolError
from hermes.protocol import (
    AlterTopicRequest,
    Buffer,
    ConfigChange,
    CreateTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    LogLines,
    PartitionDescription,
    PartitionDescriptions,
    RecentLogLinesRequest,
    ReloadConfigRequest,
    SettingDescription,
    decode_log_lines_response,
    decode_partitions_response,
    decode_refusable_response,
    decode_reload_response,
    decode_settings_response,
)


class ReloadedConfig(NamedTuple):
    """What reading broker.yaml again has led to.

    Attributes:
        left: what could not change, each with the reason.
        untold: how many more changes there are, which the broker has left out.
    """

    changed: list[ConfigChange]
    left: list[ConfigChange]
    untold: int


#: The most lines that a request can ask for; a broker keeps a thousand.
MAX_LOG_LINES: Final = 32_767


@needs(CreateTopicRequest.TYPE, "creating a topic")
def create_topic(topic: str, settings: Mapping[str, object]) -> Conversation[None]:
    """Not repeated: the second time it exists."""
    check_topic(topic)
    request = CreateTopicRequest(topic, _texts(settings))
    yield Exchange(request.encode(), _decode_nothing, repeatable=False, changes=True)


@needs(AlterTopicRequest.TYPE, "altering a topic")
def alter_topic(
    topic: str, settings: Mapping[str, object], reset: Iterable[str] | None
) -> Conversation[None]:
    """Not repeated: others may have altered it meanwhile."""
    check_topic(topic)
    names = None if reset is None else tuple(reset)
    request = AlterTopicRequest(topic, _texts(settings), names)
    yield Exchange(request.encode(), _decode_nothing, repeatable=False, changes=True)


def _texts(settings: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    for name, value in settings.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise ConfigError(name, f"expected a text or a number, got {value!r}")
    return tuple((name, str(value)) for name, value in settings.items())


def _decode_nothing(body: Buffer) -> None:
    decode_refusable_response(body)


@needs(ReloadConfigRequest.TYPE, "reading broker.yaml again")
def reload_config() -> Conversation[ReloadedConfig]:
    exchange = Exchange(ReloadConfigRequest().encode(), decode_reload_response, changes=True)
    total, changes = yield exchange
    return ReloadedConfig(
        [each for each in changes if not each.left_because],
        [each for each in changes if each.left_because],
        total - len(changes),
    )


@needs(DescribeSettingsRequest.TYPE, "describing settings")
def describe_settings(topic: str | None) -> Conversation[list[SettingDescription]]:
    if topic is not None:
        check_topic(topic)
    decode = partial(decode_settings_response, detail=_named(topic))
    settings: list[SettingDescription] = yield Exchange(
        DescribeSettingsRequest(topic or "").encode(), decode
    )
    return settings


@needs(DescribePartitionsRequest.TYPE, "describing partitions")
def describe_partitions(topic: str) -> Conversation[list[PartitionDescription]]:
    """A response has some; the next continues there."""
    check_topic(topic)
    decode = partial(decode_partitions_response, detail=_named(topic))
    partitions: list[PartitionDescription] = []
    first = 0
    while first >= 0:
        request = DescribePartitionsRequest(topic, first).encode()
        answer: PartitionDescriptions = yield Exchange(request, decode)
        numbers = [first - 1, *(each.partition for each in answer.partitions)]
        following = answer.next_partition
        if numbers != sorted(set(numbers)) or numbers[-1] >= MAX_PARTITIONS:
            raise RemoteProtocolError(f"partitions of topic {topic!r} from {first} on: {numbers}")
        if 0 <= following <= numbers[-1] or (following >= 0 and not answer.partitions):
            raise RemoteProtocolError(f"partitions of topic {topic!r} go on at {following}")
        partitions += answer.partitions
        first = following
    return partitions


@needs(RecentLogLinesRequest.TYPE, "reading the log")
def recent_log_lines(first: int | None, max_lines: int) -> Conversation[LogLines]:
    check_number("max_lines", max_lines)
    if not 0 <= max_lines <= MAX_LOG_LINES:
        raise ConfigError("max_lines", f"expected 0 to {MAX_LOG_LINES}, got {max_lines}")
    if first is not None:
        check_number("first", first)
    request = RecentLogLinesRequest(-1 if first is None else max(first, 0), max_lines)
    lines: LogLines = yield Exchange(request.encode(), decode_log_lines_response)
    return lines


def _named(topic: str | None) -> str:
    return "" if topic is None else f"topic {topic!r}"
