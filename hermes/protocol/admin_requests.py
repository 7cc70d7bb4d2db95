"""Hermes' own requests for operators: create, alter, reload, describe; types 71 to 76.

Framed and versioned as in `own_requests`. Settings travel as texts, as in broker.yaml: what they
mean is the broker's business.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from hermes.errors import RemoteProtocolError
from hermes.protocol.own_requests import EmptyRequest, TopicRequest
from hermes.protocol.wire import ByteReader, encode_string, own_frame, pack

#: The most settings that one request can give or reset; there are fewer.
MAX_SETTINGS: Final = 64

_ALL: Final = -1

#: Settings by name, each with a value as in broker.yaml.
Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CreateTopicRequest:
    """Type 71: create a topic.

        string topic | int16 count | count x (string setting | string value)

    It has up to `MAX_SETTINGS` settings of its own.
    """

    TYPE: ClassVar[int] = 71

    topic: str
    settings: Settings

    def encode(self) -> bytes:
        return own_frame(self.TYPE, encode_string(self.topic), *_encode_settings(self.settings))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), _decode_settings(reader))


@dataclass(frozen=True, slots=True)
class AlterTopicRequest:
    """Type 72: change up to `MAX_SETTINGS` of a topic's settings.

        string topic | int16 count | count x (string setting | string value)
        int16 count (-1: all) | count x string setting

    Attributes:
        reset: the settings that are to follow broker.yaml again; None for all that were set.
    """

    TYPE: ClassVar[int] = 72

    topic: str
    settings: Settings
    reset: tuple[str, ...] | None

    def encode(self) -> bytes:
        names = () if self.reset is None else self.reset
        return own_frame(
            self.TYPE,
            encode_string(self.topic),
            *_encode_settings(self.settings),
            pack(">h", _ALL if self.reset is None else len(names)),
            *map(encode_string, names),
        )

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        topic, settings, count = reader.string(), _decode_settings(reader), reader.int16()
        if count == _ALL:
            return cls(topic, settings, None)
        return cls(topic, settings, tuple(reader.string() for _ in range(_checked(reader, count))))


@dataclass(frozen=True, slots=True)
class ReloadConfigRequest(EmptyRequest):
    """Type 73: read broker.yaml again."""

    TYPE: ClassVar[int] = 73


@dataclass(frozen=True, slots=True)
class DescribeSettingsRequest(TopicRequest):
    """Type 74: ask which settings are in force, and where each comes from.

    An empty topic stands for the broker's own settings.
    """

    TYPE: ClassVar[int] = 74


@dataclass(frozen=True, slots=True)
class DescribePartitionsRequest:
    """Type 75: describe a topic's partitions.

        string topic | int32 first partition

    A response describes some of them, and says where to continue.
    """

    TYPE: ClassVar[int] = 75

    topic: str
    first: int

    def encode(self) -> bytes:
        return own_frame(self.TYPE, encode_string(self.topic), pack(">i", self.first))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.string(), reader.int32())


@dataclass(frozen=True, slots=True)
class RecentLogLinesRequest:
    """Type 76: ask for the last lines of the broker's log.

        int64 first line | int16 max lines

    A first line below 0 stands for the last ones there are.
    """

    TYPE: ClassVar[int] = 76

    first: int
    max_lines: int

    def encode(self) -> bytes:
        return own_frame(self.TYPE, pack(">qh", self.first, self.max_lines))

    @classmethod
    def decode(cls, reader: ByteReader) -> Self:
        return cls(reader.int64(), reader.int16())


def _encode_settings(settings: Settings) -> list[bytes]:
    texts = [encode_string(text) for pair in settings for text in pair]
    return [pack(">h", len(settings)), *texts]


def _decode_settings(reader: ByteReader) -> Settings:
    return tuple(
        (reader.string(), reader.string()) for _ in range(_checked(reader, reader.int16()))
    )


def _checked(reader: ByteReader, count: int) -> int:
    if reader.count(count) > MAX_SETTINGS:
        raise RemoteProtocolError(f"{count} settings in one request")
    return count
