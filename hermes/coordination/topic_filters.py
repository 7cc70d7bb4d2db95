r"""White and black lists of topics: Java's regular expressions, evaluated by `regex`.

The lists of all members of a group decide who gets which partition, so that a list must mean the
same to every member, whatever it is written in. Kafka 0.7 prepares a list like this: surrounding
spaces go, commas become `|`, other spaces and surrounding quotes go; the rest is a regular
expression that must match the whole name of a topic.
"""

from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.regex import RegexTooCostlyError, compile_java


class TopicFilter:
    """Chooses topics by a regular expression; see `Whitelist` and `Blacklist`.

    Args:
        raw: as a user writes it.

    Attributes:
        regex: as it is stored in ZooKeeper.

    Raises:
        ConfigError: it is no regular expression, or one that only Java can evaluate.
    """

    def __init__(self, raw: str) -> None:
        regex = raw.strip().replace(",", "|").replace(" ", "")
        self.regex = regex.strip("\"'")
        try:
            self._pattern = compile_java(self.regex)
        except ValueError as error:
            raise self._refused(error) from error

    def allows(self, topic: str) -> bool:
        """Raises ConfigError: the match takes more work than any expression should."""
        raise NotImplementedError

    def _matches(self, topic: str) -> bool:
        try:
            return self._pattern.matches(topic)
        except RegexTooCostlyError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> ConfigError:
        return ConfigError(
            "topic filter",
            f"{quoted(self.regex)} can't be used as a regular expression: {error}",
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other)["regex"] == self.regex

    def __hash__(self) -> int:
        return hash((type(self), self.regex))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """Selects topics whose whole name matches.

    Whitelist("clicks,views")    the two
    Whitelist("click.*")         whatever begins so, also topics that will be created
    """

    def allows(self, topic: str) -> bool:
        return self._matches(topic)


class Blacklist(TopicFilter):
    """Selects topics whose whole name does not match."""

    def allows(self, topic: str) -> bool:
        return not self._matches(topic)
