"""Which dead letters are given once more, as what, and what a look at them says beforehand."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from hermes.client.payloads import RecordData
from hermes.client.retrying.letters import Letter
from hermes.protocol.records import Headers

#: In a record that was given to its topic again: how many attempts it had before that.
ATTEMPTS_BEFORE: Final = "hermes-attempts-before"
_MOST_DIGITS: Final = 9
# Reasons may hold ids: so many different ones are counted apart.
_MOST_COUNTED: Final = 1000
_SAMPLES: Final = 10
_REASON_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are chosen.

    Attributes:
        reason: contained in why it failed last, in any case.
        topic: where it was published; empty for all.
        since_ms, until_ms: when it failed last, the end excluded; None for any time.
        most_attempts: how many it may have had in all; None for any number.
    """

    reason: str = ""
    topic: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    most_attempts: int | None = None

    def chooses(self, letter: Letter) -> bool:
        return (
            self.reason.casefold() in letter.reason.casefold()
            and self.topic in ("", letter.topic)
            and (self.since_ms is None or self.since_ms <= letter.failed_ms)
            and (self.until_ms is None or letter.failed_ms < self.until_ms)
            and (self.most_attempts is None or attempts_in_all(letter) <= self.most_attempts)
        )


def attempts_in_all(letter: Letter) -> int:
    """How many attempts it has had, also before it was given to its topic again."""
    return letter.attempts + _attempts_before(letter.headers)


def record_again(letter: Letter) -> RecordData:
    """What failed, as a record of the topic where it was published; its key is the letter's."""
    count = ATTEMPTS_BEFORE, b"%d" % min(attempts_in_all(letter), 10**_MOST_DIGITS - 1)
    own = tuple(each for each in letter.headers if each[0] != ATTEMPTS_BEFORE)
    return RecordData(letter.payload, (*own, count), letter.timestamp_ms)


def retry_topic(letter: Letter) -> str:
    """The first retry topic of the group in which it failed."""
    return f"{letter.topic}.{letter.group}.retry.1"


def dead_topic(letter: Letter) -> str:
    """The topic that its group's dead letters are in."""
    return f"{letter.topic}.{letter.group}.dead"


@dataclass(slots=True)
class LetterCounts:
    """What was found among dead letters.

    Attributes:
        chosen, others: letters that a filter chooses, and those that it doesn't.
        strange: messages that are no letters.
        reasons, topics: of the chosen ones how many; only the first 1,000 different ones.
        samples: the first of them.
    """

    chosen: int = 0
    others: int = 0
    strange: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    samples: list[Letter] = field(default_factory=list)

    def add(self, letter: Letter) -> None:
        self.chosen += 1
        failed = letter.failed_ms
        self.first_ms = failed if self.first_ms is None else min(self.first_ms, failed)
        self.last_ms = failed if self.last_ms is None else max(self.last_ms, failed)
        for counter, name in (
            (self.reasons, letter.reason[:_REASON_SHOWN]),
            (self.topics, letter.topic),
        ):
            if name in counter or len(counter) < _MOST_COUNTED:
                counter[name] += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(letter)


def _attempts_before(headers: Headers) -> int:
    """What the last such header says; nothing if that is no number."""
    found = [data for name, data in headers if name == ATTEMPTS_BEFORE and data is not None]
    is_number = bool(found) and found[-1].isdigit() and len(found[-1]) <= _MOST_DIGITS
    return int(found[-1]) if is_number else 0
