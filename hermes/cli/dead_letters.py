"""Routes replayed dead letters back: to the topics where they were published, or to their group."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from hermes.cli.partition_reader import Chunk
from hermes.cli.terminal import note
from hermes.cli.topic_copy import Sorted
from hermes.client import SyncProducer
from hermes.client.conversations import metadata
from hermes.client.retrying import Letter, letter_of
from hermes.client.retrying.letter_headers import letter_record
from hermes.client.retrying.redrive import LetterFilter, record_again, retry_topic
from hermes.errors import ClientError
from hermes.protocol import RANDOM_PARTITION, ErrorCode, Message, MetadataRequest
from hermes.protocol.record_set import RecordMessage
from hermes.quoting import quoted

# So many messages that are no dead letters are shown, the others counted.
_MOST_SHOWN: Final = 5
_SHOWN_BYTES: Final = 40


class _Target(NamedTuple):
    numbers: Sequence[int]
    holds_records: bool


class DeadLetters:
    """Unwraps dead letters.

    Args:
        topic: where all go; None for each to its own topic.
        to_partition: the partition where all go, -1 for any; None for the original one, or, where
            the topic has none of this number, one derived from it.
        to_group: whether each goes to its group's first retry topic instead, as it is.
        chosen: which go; None for all.

    Attributes:
        left_out: how many messages were no dead letters.
        others: how many dead letters were not chosen.
    """

    def __init__(
        self,
        producer: SyncProducer,
        topic: str | None,
        to_partition: int | None,
        *,
        to_group: bool = False,
        chosen: LetterFilter | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._to_partition = to_partition
        self._to_group = to_group
        self._chosen = chosen or LetterFilter()
        self._targets: dict[str, _Target] = {}
        self.left_out = self.others = 0

    def sort(self, chunk: Chunk) -> Iterator[Sorted]:
        """Unwrap the messages of a chunk.

        Yields a topic, a partition and what goes there: payloads, each with the offset after its
        message; and these as records. What is no dead letter is left out, and shown.
        """
        found = []
        for message, following in chunk.messages:
            letter = letter_of(message)
            if letter is None:
                self._leave_out(
                    message.payload or b"",
                    f"partition {chunk.partition}, the message that ends at offset {following}",
                )
            elif not self._chosen.chooses(letter):
                self.others += 1
            else:
                topic = retry_topic(letter) if self._to_group else self._topic or letter.topic
                target = topic, self._partition(topic, letter.partition)
                found.append((target, self._message(topic, letter), following))
        for target, some in groupby(found, lambda each: each[0]):
            messages = [(message, following) for _, message, following in some]
            payloads = [(message.payload or b"", following) for message, following in messages]
            yield target, payloads, [message for message, _ in messages]

    def _message(self, topic: str, letter: Letter) -> Message:
        holds_records = self._target(topic).holds_records
        if self._to_group and not holds_records:
            return RecordMessage.of_record(letter.encode(), None, (), None)
        if not holds_records:  # which may refuse what it can't keep
            beside = letter.key, letter.headers, letter.timestamp_ms
            return RecordMessage.of_record(letter.payload, *beside)
        value, headers, time_ms = letter_record(letter) if self._to_group else record_again(letter)
        return RecordMessage.of_record(value, letter.key, headers, time_ms)

    def _partition(self, topic: str, origin: int) -> int:
        if self._to_partition is not None:
            return self._to_partition
        numbers = self._target(topic).numbers
        if origin in numbers:
            return origin
        return numbers[origin % len(numbers)] if numbers else RANDOM_PARTITION

    def _target(self, topic: str) -> _Target:
        if topic not in self._targets:
            found = _Target((), False)
            if MetadataRequest.TYPE in self._producer.channel.versions():
                (described,) = self._producer.channel.run(metadata([topic])).topics
                if self._to_group and described.error == ErrorCode.UNKNOWN_TOPIC:
                    raise ClientError(
                        f"there is no topic {quoted(topic)}: the group has no retries; "
                        "leave out --to-group"
                    )
                found = _Target(described.numbers, described.holds_records)
            self._targets[topic] = found
        return self._targets[topic]

    def _leave_out(self, payload: bytes, where: str) -> None:
        self.left_out += 1
        if self.left_out <= _MOST_SHOWN:
            note(f"no dead letter, left out: {where}: {quoted(payload, _SHOWN_BYTES)}")
