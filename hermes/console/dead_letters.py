"""Reads the dead letters of a topic, and stores them again in others, in their order."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from sys import maxsize
from typing import Final, NamedTuple

from hermes.client import SyncProducer
from hermes.client.grouping import encode_records
from hermes.client.retrying import Letter
from hermes.client.retrying.letter_headers import letter_record, read_letter
from hermes.client.retrying.redrive import dead_topic, record_again, retry_topic
from hermes.config.addresses import BrokerAddress
from hermes.console.cluster_client import ClusterClient
from hermes.console.messages import FoundMessage, MessageQuery, ScanCounter, SearchProgress
from hermes.console.partition_search import PartitionSearch
from hermes.console.payload_display import ValueReader
from hermes.console.topic_views import PartitionRow, TopicReader, TopicView
from hermes.errors import BrokerError, BrokerUnavailableError, MessageTooLargeBrokerError
from hermes.protocol import Acks, Codec, ProduceRequest, encode_message_set

#: To whom letters are given: to their group alone, or to all that read their topic.
TO_GROUP, TO_TOPIC = DESTINATIONS = ("group", "topic")

#: Of letters that are sent at once; a larger one is sent alone.
BATCH_BYTES: Final = 256 * 1024


class ReadLetter(NamedTuple):
    """A message among dead letters.

    Attributes:
        letter: None if it isn't one of this topic's.
        following: where to read on after it; where it starts itself while others of its compressed
            set follow.
        damage: why nothing can be read here; empty if it can.
    """

    letter: Letter | None
    following: int
    damage: str = ""


def read_letters(
    cluster: ClusterClient, topic: TopicView, row: PartitionRow, start: int, end: int
) -> Iterator[ReadLetter]:
    """Read a range of a partition. Raises HermesError if it can't be read on, or ends before."""
    bounded = replace(row, earliest=start, high_watermark=end)
    wanted = MessageQuery("beginning", 0, maxsize, maxsize, None, ValueReader("auto"))
    with cluster.own_consumer(topic.address_of(row)) as consumer:
        search = PartitionSearch(consumer, topic.name, bounded, wanted)
        for each in search.forwards(ScanCounter(0)):
            if isinstance(each, SearchProgress):
                continue
            if isinstance(each, FoundMessage):
                is_last = each.index + 1 >= each.set_count
                following = each.next_offset if is_last else each.offset
                yield ReadLetter(_letter(each, topic.name), following)
            else:
                yield ReadLetter(None, each.next_offset or end, each.reason)
        if search.offset < end:  # a new leader may not know yet up to where it is committed
            text = f"partition {row.label} can be read up to {search.offset}, not to {end}"
            raise BrokerUnavailableError(text)


def _letter(each: FoundMessage, topic: str) -> Letter | None:
    value = None if each.is_tombstone else each.payload
    letter = read_letter(value, each.key, each.headers)
    # Whoever may write here may forge letters: none of them is to reach a topic of another name.
    return letter if letter is not None and dead_topic(letter) == topic else None


class LetterSender:
    """Stores letters, flushed when it returns. For one thread.

    `destination`: one of `DESTINATIONS`.
    """

    def __init__(self, cluster: ClusterClient, topics: TopicReader, destination: str) -> None:
        self._cluster = cluster
        self._topics = topics
        self._to_group = destination == TO_GROUP
        self._producers: dict[BrokerAddress, SyncProducer] = {}

    def topic_of(self, letter: Letter) -> str:
        return retry_topic(letter) if self._to_group else letter.topic

    def keeps(self, letter: Letter) -> bool:
        """Whether its topic keeps all of it. Raises HermesError."""
        is_payload = letter.key is None and not letter.headers and letter.payload is not None
        return self._to_group or is_payload or self._view(letter).counts_messages

    def send(self, letters: Sequence[Letter]) -> None:
        """Store letters, those of each partition in their order.

        Raises HermesError: some may be stored, and some not.
        """
        sets: dict[tuple[str, str], tuple[TopicView, PartitionRow, list[Letter]]] = {}
        for letter in letters:
            view = self._view(letter)
            row = _partition(view, letter)
            sets.setdefault((view.name, row.name), (view, row, []))[2].append(letter)
        for view, row, some in sets.values():
            self._store(view, row, some)

    def close(self) -> None:
        with ExitStack() as stack:
            for each in self._producers.values():
                stack.enter_context(closing(each))
        self._producers.clear()

    def _view(self, letter: Letter) -> TopicView:
        return self._topics.topic(self.topic_of(letter))

    def _store(self, view: TopicView, row: PartitionRow, letters: Sequence[Letter]) -> None:
        address = view.address_of(row)
        if address not in self._producers:
            self._producers[address] = self._cluster.own_producer(address)
        producer = self._producers[address]
        send = producer.send_records if view.counts_messages else producer.send_acknowledged
        request = ProduceRequest(view.name, row.number, self._encoded(view, letters))
        (outcome,) = send([request], Acks.FLUSHED)
        if isinstance(outcome, MessageTooLargeBrokerError) and len(letters) > 1:
            half = len(letters) // 2  # the topic's batches may have to be smaller than ours
            for some in (letters[:half], letters[half:]):
                self._store(view, row, some)
        elif isinstance(outcome, BrokerError):
            raise outcome

    def _encoded(self, view: TopicView, letters: Sequence[Letter]) -> bytes:
        if not view.counts_messages:
            payloads = [
                each.encode() if self._to_group else each.payload or b"" for each in letters
            ]
            return encode_message_set(payloads)
        records = [
            letter_record(each) if self._to_group else record_again(each) for each in letters
        ]
        return encode_records(
            [each.value or b"" for each in records],
            [each.key for each in letters],
            [each._replace(value=each.value is None) for each in records],
            Codec.NONE,
            max_batch_bytes=BATCH_BYTES,
        ).data


def _partition(view: TopicView, letter: Letter) -> PartitionRow:
    """Its own partition; if there is none (any more), always the same other one."""
    for row in view.partitions:
        is_its_broker = view.counts_messages or letter.broker in (None, row.broker_id)
        if row.number == letter.partition and is_its_broker:
            return row
    if view.errors:
        raise BrokerUnavailableError(view.errors[0])
    return view.partitions[letter.partition % len(view.partitions)]
