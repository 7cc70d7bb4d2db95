"""Sends batches of lines to a broker, and keeps an exact account of what it has stored."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hermes.cli.line_batches import LineBatch
from hermes.cli.retrying import Retrying
from hermes.cli.security_options import require_known
from hermes.cli.terminal import note
from hermes.client import SyncProducer
from hermes.client.conversations import metadata
from hermes.client.grouping import encode_records
from hermes.client.payloads import RecordData
from hermes.errors import (
    BrokerError,
    ClientError,
    EncodingError,
    HermesError,
    MessageTooLargeError,
    WrongFormatError,
)
from hermes.interfaces import IPartitioner
from hermes.plugins import load_plugin
from hermes.protocol import (
    RANDOM_PARTITION,
    AcknowledgedProduceRequest,
    Acks,
    Codec,
    Message,
    MetadataRequest,
    ProduceRequest,
    encode_fitting,
)

# What a broker of Kafka 0.7 accepts unless configured otherwise; it can't be asked.
_KAFKA_MAX_MESSAGE_BYTES: Final = 1_000_000

# Where 0.7's producers, and ours unless told otherwise, put a key.
_PARTITIONER: Final = "java-hash"


def choose_acks(producer: SyncProducer, name: str, *, is_required: bool) -> Acks | None:
    """Choose the acknowledgement level, by its name, that a broker supports; None for none.

    `is_required` is whether the user asked for it: then one that isn't supported is a ClientError.
    The default falls back to none, with a note.
    """
    if name == "none":
        return None
    if AcknowledgedProduceRequest.TYPE in producer.channel.versions():
        return Acks[name.upper()]
    text = f"{producer.address} is a broker of Kafka 0.7, which acknowledges nothing"
    if is_required:
        raise ClientError(f"{text}: use --acks none")
    note(f"{text}; sending with --acks none")
    return None


class BatchSender:
    """Sends batches of lines to one topic.

    Args:
        producer: stays the caller's.
        partition: -1 for one at random.
        retrying: waits for a broker that is unavailable, with acknowledgements only; without them
            nobody knows what the broker had read.
        noun: what errors call the lines.

    Attributes:
        stored_count: how many messages it has for certain: acknowledged, or read by it.
    """

    def __init__(
        self,
        producer: SyncProducer,
        topic: str,
        partition: int,
        acks: Acks | None,
        codec: Codec = Codec.NONE,
        retrying: Retrying | None = None,
        noun: str = "line",
        encode: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._acks = acks
        self._codec = codec
        self._retrying = retrying or Retrying(0)
        self._noun = noun
        self._encode = encode
        self._key_delimiter: bytes | None = None
        # Whether the topic has Kafka's format, and so keeps keys; its broker says so.
        self._sends_records = False
        self._knows_format = False
        self._sent_count = 0
        self.stored_count = 0
        self.max_message_bytes = self._ask_max_message_bytes()

    def choose_by_key(self, delimiter: bytes) -> None:
        """From now on take a key from each line, and choose the partition by it.

        A line without the delimiter has no key, and goes to any partition. Raises ClientError: a
        broker of Kafka 0.7 can't tell how many partitions there are, or this one has none.
        """
        if MetadataRequest.TYPE not in self._producer.channel.versions():
            raise ClientError("a broker of Kafka 0.7 can't tell its partitions: give one with -p")
        (topic,) = self._producer.channel.run(metadata([self._topic])).topics
        self._numbers = topic.numbers
        if not self._numbers:
            raise ClientError(
                f"{self._producer.address} has no partition of topic {self._topic!r}: name another "
                "broker of the cluster"
            )
        self._partitioner: IPartitioner = load_plugin(
            "hermes.partitioners", _PARTITIONER, IPartitioner
        )
        self._key_delimiter = delimiter

    def send(self, batch: LineBatch) -> None:
        """Send lines of at most `max_message_bytes`; with acks, wait until the broker has them.

        What is sent again because its outcome was unknown may be stored twice. Raises ClientError:
        it was refused, or the outcome is unknown; the text says which lines are stored.
        """
        keys, lines = self._split(batch.lines)
        lines, fault = self._encoded(lines)
        if keys is None:
            for count in self._send_lines(self._partition, lines, (), batch.messages):
                self._count(count)
        else:
            for partition, (chosen, payloads) in self._by_partition(keys, lines).items():
                for _ in self._send_lines(partition, payloads, chosen):
                    pass
            # Only now is it known of all lines up to some number that they are stored.
            self._count(len(lines))
        if fault is not None:
            self.finish()
            number = self._sent_count + 1
            raise ClientError(f"{self._noun} {number}: {fault}; {self.progress_text()}") from fault

    def _encoded(self, lines: list[bytes]) -> tuple[list[bytes], Exception | None]:
        """The payloads of lines, up to the first that doesn't fit, and what is wrong with it."""
        if self._encode is None:
            return lines, None
        payloads: list[bytes] = []
        for line in lines:
            try:
                payload = self._encode(line)
                if len(payload) > self.max_message_bytes:
                    raise MessageTooLargeError(len(payload), self.max_message_bytes)
            except (ValueError, EncodingError, MessageTooLargeError) as error:
                return payloads, error
            payloads.append(payload)
        return payloads, None

    def _send_lines(
        self,
        partition: int,
        lines: list[bytes],
        keys: Sequence[str | None],
        messages: Sequence[Message] = (),
    ) -> Iterator[int]:
        limit = self.max_message_bytes
        number = 0
        for sent, encoded in encode_fitting(lines, self._codec, max_message_bytes=limit):
            try:
                some = slice(number, number + len(sent))
                if messages:
                    self._send_messages(partition, sent, messages[some], encoded)
                else:
                    self._send(partition, sent, keys[some], encoded)
            except HermesError as error:
                raise self._failure(error) from error
            number += len(sent)
            yield len(sent)

    def _send(
        self, partition: int, lines: list[bytes], keys: Sequence[str | None], encoded: bytes
    ) -> None:
        if not self._sends_records:
            try:
                self._send_set(partition, encoded)
                return
            except WrongFormatError:
                self._sends_records = True
        stored = [None if key is None else key.encode("utf-8", "surrogateescape") for key in keys]
        batches = encode_records(
            lines, stored, (), self._codec, max_batch_bytes=self.max_message_bytes
        )
        self._send_set(partition, batches.data)

    def _send_messages(
        self, partition: int, payloads: list[bytes], messages: Sequence[Message], encoded: bytes
    ) -> None:
        if all(map(_is_only_payload, messages)) and not self._sends_records:
            try:
                self._send_set(partition, encoded)
                return
            except WrongFormatError:
                pass
        self._sends_records = True
        keys = [each.key for each in messages]
        records = [
            RecordData(_value(each) is None, each.headers, each.timestamp_ms) for each in messages
        ]
        limit = self.max_message_bytes
        batches = encode_records(payloads, keys, records, self._codec, max_batch_bytes=limit)
        try:
            self._send_set(partition, batches.data)
        except WrongFormatError as error:
            raise ClientError(
                f"topic {self._topic!r} has 0.7's format, which keeps payloads alone, and a "
                "message has a key, headers or no value: create it with --set format=kafka"
            ) from error

    def _failure(self, error: HermesError) -> ClientError:
        return ClientError(f"{error}; {self.progress_text()}")

    def _count(self, sent: int) -> None:
        self._sent_count += sent
        if self._acks is not None:
            self.stored_count = self._sent_count

    def _split(self, lines: list[bytes]) -> tuple[list[str | None] | None, list[bytes]]:
        if self._key_delimiter is None:
            return None, lines
        keys: list[str | None] = []
        rests = []
        for line in lines:
            key, found, rest = line.partition(self._key_delimiter)
            keys.append(key.decode("utf-8", "surrogateescape") if found else None)
            rests.append(rest if found else line)
        return keys, rests

    def _by_partition(
        self, keys: Sequence[str | None], payloads: Sequence[bytes]
    ) -> dict[int, tuple[list[str | None], list[bytes]]]:
        grouped: dict[int, tuple[list[str | None], list[bytes]]] = {}
        for key, payload in zip(keys, payloads, strict=False):
            partition = RANDOM_PARTITION
            if key is not None:
                place = self._partitioner.partition(self._topic, key, len(self._numbers))
                partition = self._numbers[place]
            chosen, payloads_there = grouped.setdefault(partition, ([], []))
            chosen.append(key)
            payloads_there.append(payload)
        return grouped

    def finish(self) -> None:
        """Return when the broker has read everything that was sent. Raises ClientError."""
        if self._sent_count > self.stored_count:
            try:
                self._producer.barrier()
            except HermesError as error:
                raise self._failure(error) from error
            self.stored_count = self._sent_count

    def progress_text(self) -> str:
        if self.stored_count:
            return f"{self._noun}s 1 to {self.stored_count} are stored"
        return f"no {self._noun} is known to be stored"

    def _send_set(self, partition: int, encoded: bytes) -> None:
        if self._acks is None and not self._sends_records and self._may_go_unanswered():
            self._producer.send(self._topic, partition, encoded)
            return
        while True:
            try:
                request = ProduceRequest(self._topic, partition, encoded)
                acks = self._acks or Acks.WRITTEN
                send = self._producer.send_acknowledged
                if self._sends_records:
                    send = self._producer.send_records
                (outcome,) = send([request], acks)
                if isinstance(outcome, BrokerError):
                    raise outcome
            except WrongFormatError:
                raise
            except HermesError as error:
                self._retrying.failed(error)
            else:
                self._knows_format = True
                self._retrying.succeeded()
                return

    def _may_go_unanswered(self) -> bool:
        """Records always want an answer, and only one tells which format a topic has, or gets."""
        return self._knows_format or not self._producer.can_acknowledge()

    def _ask_max_message_bytes(self) -> int:
        if MetadataRequest.TYPE not in self._producer.channel.versions():
            return _KAFKA_MAX_MESSAGE_BYTES
        answer = self._producer.channel.run(metadata(()))
        return require_known(answer, self._producer.address).max_message_bytes


def _is_only_payload(message: Message) -> bool:
    return message.key is None and not message.headers and _value(message) is not None


def _value(message: Message) -> bytes | None:
    value: bytes | None = message.payload
    return value
