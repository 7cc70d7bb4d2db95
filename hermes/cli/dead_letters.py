"""Routes replayed dead letters back to the topics where they were published."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from hermes.cli.partition_reader import Chunk
from hermes.cli.terminal import note
from hermes.cli.topic_copy import Sorted
from hermes.client import SyncProducer
from hermes.client.conversations import metadata
from hermes.client.retrying import Letter, letter_of
from hermes.protocol import RANDOM_PARTITION, Message, MetadataRequest
from hermes.protocol.record_set import RecordMessage
from hermes.quoting import quoted

# So many messages that are no dead letters are shown, the others counted.
_MOST_SHOWN: Final = 5
_SHOWN_BYTES: Final = 40


class DeadLetters:
    """Unwraps dead letters.

    Args:
        topic: where all go; None for each to its own topic.
        to_partition: the partition where all go, -1 for any; None for the original one, or, where
            the topic has none of this number, one derived from it.

    Attributes:
        left_out: how many messages were no dead letters.
    """

    def __init__(self, producer: SyncProducer, topic: str | None, to_partition: int | None) -> None:
        self._producer = producer
        self._topic = topic
        self._to_partition = to_partition
        self._numbers: dict[str, Sequence[int]] = {}
        self.left_out = 0

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
            else:
                topic = self._topic or letter.topic
                target = topic, self._partition(topic, letter.partition)
                found.append((target, letter, following))
        for target, some in groupby(found, lambda each: each[0]):
            letters = [(letter, following) for _, letter, following in some]
            payloads = [(letter.payload or b"", following) for letter, following in letters]
            yield target, payloads, [_message(letter) for letter, _ in letters]

    def _partition(self, topic: str, origin: int) -> int:
        if self._to_partition is not None:
            return self._to_partition
        if topic not in self._numbers:
            self._numbers[topic] = ()
            if MetadataRequest.TYPE in self._producer.channel.versions():
                (described,) = self._producer.channel.run(metadata([topic])).topics
                self._numbers[topic] = described.numbers
        numbers = self._numbers[topic]
        if origin in numbers:
            return origin
        return numbers[origin % len(numbers)] if numbers else RANDOM_PARTITION

    def _leave_out(self, payload: bytes, where: str) -> None:
        self.left_out += 1
        if self.left_out <= _MOST_SHOWN:
            note(f"no dead letter, left out: {where}: {quoted(payload, _SHOWN_BYTES)}")


def _message(letter: Letter) -> Message:
    beside = letter.key, letter.headers, letter.timestamp_ms
    return RecordMessage.of_record(letter.payload, *beside)
