r"""White and black lists of topics: Java's regular expressions, evaluated by Python's.

The lists of all members of a group decide who gets which partition, so that a list must mean the
same to every member, whatever it is written in. Kafka 0.7 prepares a list like this: surrounding
spaces go, commas become `|`, other spaces and surrounding quotes go; the rest is a regular
expression that must match the whole name of a topic.

What the two languages write differently is translated: `\Q...\E`, ASCII classes such as
`\p{Alnum}`, groups with names, `\z` and `\Z`. `\w`, `\d`, `\s` and `(?i)` are
ASCII in both. What Python can't evaluate is refused with a clear error rather than evaluated
wrongly: Unicode classes (`\p{L}`), classes within classes (`[a-z&&[^b]]`), `\G`, `\R`, `\X`.
One difference stays: `.` matches U+2028 and U+2029 here.
"""

import re
import warnings
from typing import Final

from hermes.errors import ConfigError

__all__ = ["Blacklist", "TopicFilter", "Whitelist", "java_pattern"]

# Java's ASCII classes, as the inside of a class of Python's.
_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
}
_REFUSED_ESCAPES: Final = frozenset("GRXNhHVckpPux")


class TopicFilter:
    """Chooses topics by a regular expression; see `Whitelist` and `Blacklist`.

    Args:
        raw: as a user writes it.

    Attributes:
        regex: as it stands in ZooKeeper.

    Raises:
        ConfigError: it is no regular expression, or one that only Java can evaluate.
    """

    def __init__(self, raw: str) -> None:
        regex = raw.strip().replace(",", "|").replace(" ", "")
        self.regex = regex.strip("\"'")
        self._pattern = java_pattern(self.regex)

    def allows(self, topic: str) -> bool:
        """Whether the topic is chosen."""
        raise NotImplementedError

    def _matches(self, topic: str) -> bool:
        return self._pattern.fullmatch(topic) is not None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other)["regex"] == self.regex

    def __hash__(self) -> int:
        return hash((type(self), self.regex))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """Chooses the topics whose whole name matches.

    Whitelist("clicks,views")    the two
    Whitelist("click.*")         whatever begins so, also topics that will be created
    """

    def allows(self, topic: str) -> bool:
        """See `TopicFilter`."""
        return self._matches(topic)


class Blacklist(TopicFilter):
    """Chooses the topics whose whole name does not match."""

    def allows(self, topic: str) -> bool:
        """See `TopicFilter`."""
        return not self._matches(topic)


def java_pattern(regex: str) -> re.Pattern[str]:
    """Compile a regular expression of Java's.

    Args:
        regex: as Java reads it.

    Returns:
        What matches the same, but for what the module's description excepts.

    Raises:
        ConfigError: it is none, or one that only Java can evaluate.
    """
    try:
        translated = _translate(regex)
        with warnings.catch_warnings():
            # Python warns of classes within classes that it reads in another way than Java.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(translated, re.ASCII)
    except (re.error, FutureWarning, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(
            "topic filter", f"{regex!r} can't be used as a regular expression: {error}"
        ) from error


def _translate(regex: str) -> str:
    """Write a regular expression of Java's as one of Python's. Raises ValueError."""
    parts: list[str] = []
    position, depth = 0, 0
    while position < len(regex):
        character = regex[position]
        if character == "\\":
            part, position = _escape(regex, position + 1, depth > 0)
            parts.append(part)
            continue
        if character == "[":
            depth += 1
        elif character == "]" and depth:
            depth -= 1
        if depth > 1 or (depth and regex.startswith("&&", position)):
            raise ValueError("classes within classes are Java's alone")
        if regex.startswith("(?<", position) and regex[position + 3 : position + 4] not in "=!":
            parts.append("(?P<")
            position += 3
            continue
        parts.append(character)
        position += 1
    return "".join(parts)


def _escape(regex: str, position: int, within_class: bool) -> tuple[str, int]:
    """Translate what stands behind a backslash; returns it and the position behind."""
    letter = regex[position : position + 1]
    if letter == "Q":
        end = regex.find("\\E", position)
        quoted = regex[position + 1 : end if end >= 0 else len(regex)]
        return re.escape(quoted), end + 2 if end >= 0 else len(regex)
    if letter in ("p", "P") and regex[position + 1 : position + 2] == "{":
        name, brace, _ = regex[position + 2 :].partition("}")
        inside = _CLASSES.get(name.removeprefix("Is"))
        if not brace or inside is None:
            raise ValueError(f"the class {name!r} is Java's alone")
        if within_class and letter == "P":
            raise ValueError("a negated class within a class is Java's alone")
        negation = "^" if letter == "P" else ""
        translated = inside if within_class else f"[{negation}{inside}]"
        return translated, position + len(name) + 3
    if letter == "x" and re.fullmatch("[0-9a-fA-F]{2}", regex[position + 1 : position + 3]):
        return f"\\x{regex[position + 1 : position + 3]}", position + 3
    if letter == "u" and re.fullmatch("[0-9a-fA-F]{4}", regex[position + 1 : position + 5]):
        return f"\\u{regex[position + 1 : position + 5]}", position + 5
    if letter == "k" and (group := re.match(r"k<(\w+)>", regex[position:])):
        return f"(?P={group[1]})", position + len(group[0])
    if letter in _REFUSED_ESCAPES:
        raise ValueError(f"\\{letter} is Java's alone")
    translated = {"z": r"\Z", "Z": r"(?=\n?\Z)", "e": r"\x1b"}.get(letter, f"\\{letter}")
    return translated, position + 1
