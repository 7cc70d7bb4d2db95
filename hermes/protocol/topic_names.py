"""Which topic names are allowed.

Source: Kafka 0.7's TopicNameValidator. What 0.7 accepts can always be fetched; a new topic must
also suit the file system and ZooKeeper, with both of which 0.7 fails later.
"""

import re
from typing import Final

from hermes.errors import InvalidTopicError
from hermes.quoting import quoted

_ILLEGAL: Final = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
# ZooKeeper's paths are checked by UTF-16 unit and refuse surrogates.
_REFUSED_BY_ZOOKEEPER: Final = re.compile(r"[\U00010000-\U0010ffff]")
_MAX_FILE_NAME_BYTES: Final = 255
_KAFKA_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_KAFKA_LENGTH: Final = 249


def check_topic_name(name: str, max_length: int = 255) -> None:
    """Check a name by 0.7's rule.

    Args:
        max_length: the most characters, counted as Java does: those above U+FFFF count twice.

    Raises:
        InvalidTopicError: its message says what is wrong. 0.7 responds to a fetch with -1 and
            closes after a produce.
    """
    if not name:
        raise InvalidTopicError("a topic's name can't be empty")
    length = len(name)
    if not name.isascii():
        length += sum(character > "\uffff" for character in name)
    if length > max_length:
        raise InvalidTopicError(
            f"the topic name {quoted(name)} has {length} characters, {max_length} are allowed"
        )
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic can't be called {name!r}")
    if illegal := _ILLEGAL.search(name):
        raise InvalidTopicError(
            f"the topic name {quoted(name)} holds U+{ord(illegal[0]):04X}, which is not allowed"
        )


def check_new_topic_name(name: str, max_length: int = 255, longest_suffix: int = 2) -> None:
    """Check the name of a topic that is about to be created.

    Args:
        longest_suffix: the length of the longest `-<partition>` that will follow the name in
            directory names, in bytes; 2 for up to ten partitions.

    Raises:
        InvalidTopicError: its message says what is wrong; nothing may be created.
    """
    check_topic_name(name, max_length)
    if refused := _REFUSED_BY_ZOOKEEPER.search(name):
        raise InvalidTopicError(
            f"the topic name {quoted(name)} holds U+{ord(refused[0]):04X}, which ZooKeeper refuses"
        )
    length = len(name.encode()) + longest_suffix
    if length > _MAX_FILE_NAME_BYTES:
        raise InvalidTopicError(
            f"the topic name {quoted(name)} makes directory names of {length} bytes, "
            f"file systems allow {_MAX_FILE_NAME_BYTES}"
        )


def check_kafka_topic_name(name: str) -> None:
    """Check the name of a topic that Kafka clients create, by Kafka's rule, and in its words."""
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > _MAX_KAFKA_LENGTH:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of {quoted(name)} is longer than the max allowed "
            f"length {_MAX_KAFKA_LENGTH}"
        )
    if not _KAFKA_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"Topic name is invalid: {quoted(name)} contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
