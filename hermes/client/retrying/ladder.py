"""The topics through which a failed message climbs, one delay after the other, to the dead letters.

In this order: `<topic>.<group>.retry.1`, `<topic>.<group>.retry.2` and so on, as many as there are
delays; then `<topic>.<group>.dead`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hermes.client.arguments import check_topic, seconds_of
from hermes.coordination.topic_filters import Whitelist
from hermes.errors import ArgumentError, ConfigError, EncodingError, MessageRejectedError
from hermes.protocol import check_topic_name
from hermes.quoting import quoted

_MOST_DELAYS: Final = 100


class Rung(NamedTuple):
    """A retry topic: of which topic, and which of its retry topics, from 1."""

    topic: str
    level: int


class Ladder:
    """The retry topics and dead letters of some topics in a group.

    Without delays every failed message is a dead letter at once.

    Raises:
        ArgumentError: there is no topic, or one is not a text.
        ConfigError: a delay is wrong, there are too many, or topics get in each other's way.
        InvalidTopicError: a topic's name, with what is added to it, is too long or not allowed.
    """

    def __init__(self, group: str, topics: Sequence[str], delays: Sequence[str | float]) -> None:
        if isinstance(topics, str) or not topics:
            raise ArgumentError(f"topics: expected a list of names, got {quoted(topics)}")
        if isinstance(delays, str):
            raise ConfigError("delays", f"expected a list of durations, got {quoted(delays)}")
        if len(delays) > _MOST_DELAYS:
            raise ConfigError("delays", f"expected {_MOST_DELAYS} at most, got {len(delays)}")
        self.group = group
        self.topics = tuple(dict.fromkeys(topics))
        self._seconds = [seconds_of("delays", each) for each in delays]
        self._prefixes: Mapping[str, str] = {}
        for topic in self.topics:
            check_topic(topic)
            for name in (topic, self.dead(topic), self.retry(topic, _MOST_DELAYS)):
                check_topic_name(name)
        self._prefixes = {f"{topic}.{group}.retry.": topic for topic in self.topics}
        for topic in self.topics:
            if self.rung(topic) is not None:
                raise ConfigError("topics", f"{quoted(topic)} is a retry topic of another one")

    def retry(self, topic: str, level: int) -> str:
        return f"{topic}.{self.group}.retry.{level}"

    def dead(self, topic: str) -> str:
        return f"{topic}.{self.group}.dead"

    def above(self, rung: Rung) -> str:
        """The topic where a message goes that has failed on a rung (level 0: in the topic)."""
        if rung.level < len(self._seconds):
            return self.retry(rung.topic, rung.level + 1)
        return self.dead(rung.topic)

    def delay(self, level: int) -> float:
        """For how many seconds messages wait in the retry topic of this level.

        Those in retry topics that a former configuration has left wait as long as in the last one.
        """
        return self._seconds[min(level, len(self._seconds)) - 1] if self._seconds else 0.0

    def rung(self, name: str) -> Rung | None:
        prefix, _, level = name.rpartition(".")
        topic = self._prefixes.get(f"{prefix}.")
        is_level = level.isascii() and level.isdecimal() and level[0] != "0" and len(level) < 5
        return Rung(topic, int(level)) if topic is not None and is_level else None

    def retry_topics(self) -> Whitelist:
        """Choose all retry topics, also of levels that a former configuration has left."""
        number = "[1-9][0-9]?[0-9]?[0-9]?"
        return Whitelist("|".join(_literal(prefix) + number for prefix in self._prefixes))


def is_hopeless(failure: BaseException) -> bool:
    """Whether no retry can help: the message becomes a dead letter at once."""
    return isinstance(failure, EncodingError | MessageRejectedError)


def _literal(text: str) -> str:
    """Write a text as a regular expression of Java's; a filter would change commas and spaces."""
    return "".join(
        f"\\u{ord(each):04x}" if each.isascii() and not each.isalnum() else each for each in text
    )
