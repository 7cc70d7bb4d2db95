"""The registry's topic at its home: read from an offset on, and appended to. Blocks."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from hermes.client import SimpleConsumer
from hermes.client.sync_producer import SyncProducer
from hermes.config.topic import SCHEMAS_TOPIC
from hermes.errors import BrokerError, InvalidMessageError, TopicExistsError, UnknownTopicError
from hermes.protocol import (
    EARLIEST,
    LATEST,
    Acks,
    FetchRequest,
    ProduceRequest,
    encode_message_set,
)
from hermes.registry.home import HomeBroker, HomeError
from hermes.registry.log_records import decode_record
from hermes.registry.replica import ReplicaPosition
from hermes.registry.snapshot import SnapshotFile

_PARTITION: Final = 0
_FETCH_BYTES: Final = 1 << 20
_TIMEOUT_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0


class WrongTopicError(HomeError):
    """The home's topic isn't the one that was read so far; an operator has to act."""


class TopicMessage(NamedTuple):
    offset: int
    next_offset: int
    payload: bytes


class HomeTopic:
    """Connections to the home, opened when they are first used.

    Every method raises HermesError when the broker can't be reached or refuses.
    """

    def __init__(self, home: HomeBroker) -> None:
        self.home = home
        settings: dict[str, Any] = {
            "timeout_seconds": _TIMEOUT_SECONDS,
            "connect_timeout_seconds": _CONNECT_SECONDS,
            **home.security.settings(),
        }
        self._consumer = SimpleConsumer(home.host, home.port, **settings)
        self._producer = SyncProducer(home.host, home.port, **settings)
        self._looker = SimpleConsumer(home.host, home.port, **settings)  # as reading may be waiting
        self._exists = False

    def bounds(self) -> tuple[int, int]:
        """Its earliest offset and its end; zeros where there is no such topic."""
        ask = self._consumer.get_offsets_before
        (earliest,) = ask(SCHEMAS_TOPIC, _PARTITION, EARLIEST)
        return earliest, self.end()

    def end(self) -> int:
        """Where the next message will be; any thread may ask."""
        (end,) = self._looker.get_offsets_before(SCHEMAS_TOPIC, _PARTITION, LATEST)
        return end

    def check_follows(self, mark: ReplicaPosition, snapshot: SnapshotFile | None) -> None:
        """Refuse (WrongTopicError) a topic that isn't the one that a copy has read up to `mark`."""
        earliest, end = self.bounds()
        if mark.position < earliest:
            raise WrongTopicError(
                f"the beginning of {SCHEMAS_TOPIC} at {self.home} was deleted, up to offset "
                f"{earliest}: restore it from a backup"
            )
        problem = ""
        if mark.position > end:
            problem = f"it ends at offset {end}, and this registry has read up to {mark.position}"
        elif mark.last_offset >= earliest:
            found = self.read(mark.last_offset)
            record = decode_record(found[0].payload) if found else None
            if record is None or record.id != mark.last_id:
                problem = f"it has another event at offset {mark.last_offset}"
        if problem:
            how = "" if snapshot is None else f", delete {snapshot.path}"
            raise WrongTopicError(
                f"{SCHEMAS_TOPIC} at {self.home} is not what it was: {problem}. Restore it; or, to "
                f"take it as it is and lose ids that were given out, stop this registry{how} and "
                "start it again"
            )

    def max_message_bytes(self) -> int:
        return self._consumer.metadata(()).max_message_bytes

    def read(self, position: int, wait_ms: int = 0) -> list[TopicMessage]:
        """Read on from where a message starts; wait `wait_ms` for one; returns nothing at the end.

        Raises HomeError: one of them is damaged; those before it are returned first.
        """
        request = FetchRequest(SCHEMAS_TOPIC, _PARTITION, position, _FETCH_BYTES)
        try:
            if wait_ms:
                (result,) = self._consumer.fetch_waiting([request], wait_ms)
                if result.error is not None:
                    raise result.error
                messages = result.messages
            else:
                messages = self._consumer.fetch(request)
        except UnknownTopicError:
            return []  # the first schema creates it
        found: list[TopicMessage] = []
        try:
            for message, next_offset in messages.iterate(deep=False):
                found.append(TopicMessage(position, next_offset, bytes(message.payload)))
                position = next_offset
        except InvalidMessageError as error:
            if not found:
                raise HomeError(
                    f"{SCHEMAS_TOPIC} at {self.home} is damaged at offset {position} ({error}): "
                    "restore it from a backup"
                ) from error
        return found

    def append(self, payloads: Sequence[bytes]) -> list[TopicMessage]:
        """Append messages, all at once, and wait until they are on disk.

        Returns where they are: in a row, unless somebody else's came in between, which this doesn't
        show: each begins where the one before ends.
        """
        if not self._exists:
            self._create()
        sets = [encode_message_set([payload]) for payload in payloads]
        request = ProduceRequest(SCHEMAS_TOPIC, _PARTITION, b"".join(sets))
        (outcome,) = self._producer.send_acknowledged([request], Acks.FLUSHED)
        if isinstance(outcome, BrokerError):
            raise outcome
        assert outcome.offset is not None
        stored, offset = [], outcome.offset
        for payload, encoded in zip(payloads, sets, strict=True):
            stored.append(TopicMessage(offset, offset + len(encoded), payload))
            offset += len(encoded)
        return stored

    def _create(self) -> None:
        """Make the topic with the one partition that is used, whatever the broker's default."""
        with suppress(TopicExistsError):
            self._consumer.create_topic(SCHEMAS_TOPIC, {"partitions": 1})
        self._exists = True

    def close(self) -> None:
        """Disconnect; calls of other threads end with an error. Idempotent."""
        self._consumer.close()
        self._producer.close()
        self._looker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
