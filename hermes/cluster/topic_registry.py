"""Which topics and partitions there are, and when a new one is created.

A topic exists once one of its partitions has a directory. It has as many partitions as
broker.yaml says, or as the directories prove if those are more: lowering a number in a
configuration must not make data unreachable. Partitions get their directory when they are first
written, as in 0.7; of a topic that broker.yaml declares the first has one from the start, so that
producers see all its partitions before they choose one for a key. Fetching never creates anything,
and remembers nothing about unknown names.
"""

import random
from bisect import insort
from collections.abc import Callable, Iterable
from uuid import UUID

from twisted.internet.defer import Deferred

from hermes.announcement import Announcement
from hermes.config.broker import BrokerConfig
from hermes.config.kinds import FORMAT_0_7
from hermes.errors import (
    BrokerStoppingError,
    ConfigError,
    HermesError,
    TooManyTopicsError,
    TopicBeingDeletedError,
    TopicExistsError,
    UnknownTopicError,
    WrongFormatError,
    WrongPartitionError,
)
from hermes.logs import ModuleLogger
from hermes.protocol import check_kafka_topic_name, check_new_topic_name, check_topic_name
from hermes.quoting import printable, quoted
from hermes.server.settings import Settings
from hermes.storage import DataDirectory, Log
from hermes.storage.kafka_0_7 import KAFKA_0_7
from hermes.storage.kafka_format import KAFKA
from hermes.storage.log_format import LogFormat

#: How much of the names of created topics a line shows, in characters.
_NAMES_LENGTH = 200


class TopicRegistry:
    """The topics of one broker; lives in the reactor's thread.

    Args:
        on_created: called with the name, the number of partitions and the format of each topic
            that is created, or gets more, so that they can be announced.
        on_deleted: called with the name of each topic that is gone, and its UUID if it had one.
        owns: says whether a partition is this broker's; of topics that are numbered through over
            a cluster, others are other brokers'.
        check_here: raises NotLeaderError for a partition that other brokers have, and not this one.

    Attributes:
        stopping: set when the broker stops: nothing is created from then on.
    """

    _log = ModuleLogger()

    def __init__(
        self,
        directory: DataDirectory,
        settings: Settings,
        on_created: Callable[[str, int, str], None] = lambda topic, partitions, log_format: None,
        on_deleted: Callable[[str, UUID | None], None] = lambda topic, topic_id: None,
        owns: Callable[[str, int], bool] = lambda topic, partition: True,
        check_here: Callable[[str, int], None] = lambda topic, partition: None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._on_created = on_created
        self._on_deleted = on_deleted
        self._counts: dict[str, int] = {}
        self._written: dict[str, list[int]] = {}  # the partitions that have a log, ascending
        self._deleting: dict[str, Announcement[None]] = {}  # that each is gone
        self._deleted_ids: dict[str, UUID | None] = {}  # of those
        self._observers: list[Callable[[str], None]] = []
        self.stopping = False
        self._owns = owns
        self._check_here = check_here
        for topic, partition in directory.logs:
            self._note(topic, partition)

    @property
    def _config(self) -> BrokerConfig:
        return self._settings.config

    def on_change(self, observer: Callable[[str], None]) -> None:
        """Have `observer` called with each topic that is created, gets partitions, or is gone."""
        self._observers.append(observer)

    def reopened(self, log: Log) -> None:
        """A log is back online: what wasn't known of its topic may be now."""
        self._tell(log.topic)

    def _tell(self, topic: str) -> None:
        for observer in self._observers:
            observer(topic)

    def missing(self) -> list[str]:
        """The declared topics that don't exist: of broker.yaml, or created and lost in a crash."""
        config = self._config
        missing = [each for each in {**config.topics, **config.altered} if each not in self._counts]
        if config.kafka_listen and config.coordination != "none":
            # Those of Kafka's format are the cluster's.
            return [each for each in missing if config.topic(each).format == FORMAT_0_7]
        return missing

    def create_declared(self, topic: str) -> str:
        """Create one of `missing`; its name, or "" if that fails: its first produce tries again."""
        try:
            self.create(topic)
        except HermesError as error:
            self._log.error(
                "can't create {topic}, which broker.yaml declares: {error}",
                topic=topic,
                error=error,
            )
            return ""
        return topic

    def report_declared(self, created: Iterable[str]) -> None:
        names = [topic for topic in created if topic]
        if names:
            self._log.info(
                "created {count} of the topics that broker.yaml declares: {names}",
                count=len(names),
                names=printable(", ".join(names), _NAMES_LENGTH),
            )

    def __len__(self) -> int:
        return len(self._counts)

    def names(self) -> list[str]:
        return sorted(self._counts)

    def of_format(self, log_format: str) -> dict[str, int]:
        return {
            topic: self._counts[topic] for topic in self.names() if self.format(topic) == log_format
        }

    def exists(self, topic: str) -> bool:
        """Whether the topic was declared or written to, and not deleted since."""
        return topic in self._counts

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, or would have if it were created now."""
        count = self._counts.get(topic)
        return self._config.topic(topic).partitions if count is None else count

    def beyond_configuration(self) -> dict[str, tuple[int, int]]:
        """The topics that have more partitions than broker.yaml says: how many of each."""
        said = {topic: self._config.topic(topic).partitions for topic in self._counts}
        return {
            topic: (count, said[topic])
            for topic, count in sorted(self._counts.items())
            if count > said[topic] and self.format(topic) == FORMAT_0_7
        }

    def written_count(self, topic: str) -> int:
        return len(self._written.get(topic, ()))

    def partitions(self, topic: str) -> list[Log]:
        """The logs of the partitions that were written, in their order."""
        find = self._directory.get
        found = (find(topic, partition) for partition in self._written.get(topic, ()))
        return [log for log in found if log is not None]

    def check_exists(self, topic: str) -> None:
        if topic not in self._counts:
            raise UnknownTopicError(f"there is no topic {quoted(topic)}")

    def for_fetch(self, topic: str, partition: int) -> Log | None:
        """A partition's log, creating nothing; None for one that was never written to.

        Raises InvalidTopicError; WrongPartitionError: there is no such partition; NotLeaderError:
        another broker's.
        """
        log = self._directory.get(topic, partition)
        if log is None:
            check_topic_name(topic, self._config.max_topic_name_length)
            self._check_here(topic, partition)
            self._check_partition(topic, partition)
        return log

    def for_produce(self, topic: str, partition: int) -> Log:
        """Find or create a partition's log; -1 is one at random. A new topic is of 0.7's format.

        Raises:
            InvalidTopicError: the name is not allowed, or can't be stored.
            UnknownTopicError: it does not exist and may not be created by producing.
            TooManyTopicsError: it does not exist, and there are `max_topics` or `max_partitions`.
            WrongPartitionError, NotLeaderError, TopicBeingDeletedError, BrokerStoppingError,
            StorageError
        """
        if partition == -1:
            numbers = range(self.partition_count(topic))
            partition = random.choice(numbers)
            if not self._owns(topic, partition):
                partition = random.choice([n for n in numbers if self._owns(topic, n)] or numbers)
        log = self._directory.get(topic, partition)
        if log is not None and topic not in self._deleting:
            return log
        return self._create(topic, partition, None if topic in self._counts else KAFKA_0_7)

    def is_declared(self, topic: str) -> bool:
        """Whether broker.yaml names a topic, or it was created by request."""
        return topic in self._config.topics or topic in self._config.altered

    def check_creatable(self, topic: str) -> None:
        """Raise UnknownTopicError for a topic that may not be created by producing to it."""
        if not (self._config.auto_create_topics or self.is_declared(topic)):
            raise UnknownTopicError(
                f"topic {quoted(topic)} does not exist and auto_create_topics is off; "
                "list it under `topics` in broker.yaml"
            )

    def check_new(self, topic: str, partitions: int) -> None:
        """Refuse a topic that can't be created with this many partitions.

        Raises TopicExistsError, BrokerStoppingError, TopicBeingDeletedError, InvalidTopicError or
        TooManyTopicsError.
        """
        self._check_free(topic)
        if topic in self._counts:
            raise TopicExistsError(f"topic {quoted(topic)} exists already")
        self._check_room(topic, new=True)
        self._check_name(topic, partitions)

    def check_existing(self, topic: str, partitions: int, *, is_wanted: bool) -> None:
        """Refuse a topic that can't be changed to have this many partitions.

        Args:
            is_wanted: whether somebody wants exactly that; else those that are more just stay.

        Raises:
            ConfigError: it has more partitions.
            UnknownTopicError, BrokerStoppingError, TopicBeingDeletedError, InvalidTopicError
        """
        self._check_free(topic)
        if topic not in self._counts:
            raise UnknownTopicError(f"there is no topic {quoted(topic)}")
        count = self._counts[topic]
        if is_wanted and partitions < count:
            raise ConfigError(
                "partitions", f"topic {quoted(topic)} has {count}, and never loses one"
            )
        self._check_name(topic, partitions)

    def format(self, topic: str) -> str:
        """What a topic's partitions hold, or would hold if it were created now."""
        for partition in self._written.get(topic, ()):
            log = self._directory.get(topic, partition)
            if log is not None:
                return log.format.name
        return self._config.topic(topic).format

    def check_format(self, topic: str, wanted: str) -> None:
        """Refuse another format for a topic that has partitions, with a ConfigError."""
        if self._written.get(topic) and wanted != self.format(topic):
            raise ConfigError(
                "format", f"topic {quoted(topic)} is {self.format(topic)}, and keeps its format"
            )

    def create(self, topic: str) -> None:
        """Create a topic, with a directory for its first partition; `check_new` comes first."""
        if topic not in self._counts:  # a produce may have been quicker
            self._create(topic, 0)

    def settings_changed(self, topic: str) -> None:
        """Have as many partitions of a topic as its settings say, if those are more."""
        if topic in self._counts:
            count = self._config.topic(topic).partitions
            if count > self._counts[topic]:
                self._counts[topic] = count
                if self.format(topic) != FORMAT_0_7:
                    self._make_new(topic, count)
                self._announce(topic)

    def _make_new(self, topic: str, count: int) -> None:
        """Make the new partitions of a topic of Kafka's format: clients see those that there are.

        One that can't be made is made by the first produce to it.
        """
        for number in range(count):
            if self._directory.get(topic, number) is None and self._owns(topic, number):
                try:
                    self._make(topic, number)
                except HermesError as error:
                    self._log.error(
                        "can't create {topic}-{number}, which the topic's settings want: {error}",
                        topic=topic,
                        number=number,
                        error=error,
                    )

    def begin_delete(self, topic: str) -> list[Log]:
        """Hide a topic before its files are deleted; returns its logs. `end_delete` comes after.

        Raises UnknownTopicError, TopicBeingDeletedError.
        """
        if topic in self._deleting:
            raise TopicBeingDeletedError(f"topic {quoted(topic)} is being deleted")
        if topic not in self._counts:
            raise UnknownTopicError(f"there is no topic {quoted(topic)}")
        logs = self.partitions(topic)
        self._deleting[topic] = Announcement()
        self._deleted_ids[topic] = next((log.topic_id for log in logs if log.topic_id), None)
        return logs

    def end_delete(self, *topics: str) -> None:
        """The files are gone (or the attempt failed): the names may be used again.

        Those that waited for that come first, before anybody can begin the next delete.
        """
        doomed = set(topics)
        left = [each for each in self._directory.logs if each[0] in doomed]
        for topic in topics:
            self._end_delete(topic, [number for name, number in left if name == topic])

    def _end_delete(self, topic: str, left: Iterable[int]) -> None:
        gone, topic_id = self._deleting.pop(topic), self._deleted_ids.pop(topic)
        del self._counts[topic], self._written[topic]
        for partition in left:
            self._note(topic, partition)
        if topic not in self._counts:
            self._on_deleted(topic, topic_id)
        self._tell(topic)
        gone.tell(None)

    def is_being_deleted(self, topic: str) -> bool:
        return topic in self._deleting

    def deletion(self, topics: Iterable[str]) -> "Deferred[None] | None":
        """Fires when the first of these topics that is being deleted is gone; None when none is.

        A caller that doesn't want to wait any longer may fire it.
        """
        if self._deleting:
            for topic in topics:
                if topic in self._deleting:
                    return self._deleting[topic].wait()
        return None

    def _create(self, topic: str, partition: int, log_format: LogFormat | None = None) -> Log:
        """Create a partition, and announce the topic if it is new.

        `log_format`: of a new topic; what its settings say unless given.
        """
        # One of Kafka's format has all its partitions from the start: who numbers them through over
        # a cluster goes by those that there are.
        new = topic not in self._counts
        log = self._make(topic, partition, log_format)
        try:
            if new and log.counts_messages:
                for number in range(self._counts[topic]):
                    if self._directory.get(topic, number) is None:
                        self._make(topic, number)
        finally:
            if new:
                self._announce(topic)
            elif log.counts_messages:
                self._tell(topic)
        return log

    def _announce(self, topic: str) -> None:
        self._on_created(topic, self._counts[topic], self.format(topic))
        self._tell(topic)

    def create_numbered(
        self, topic: str, number: int, topic_id: UUID, *, is_sole_copy: bool = True
    ) -> Log:
        """Create a partition of a `kafka` topic by Kafka's number; smaller ones needn't be here.

        Raises BrokerStoppingError, TopicBeingDeletedError, InvalidTopicError, TooManyTopicsError,
        StorageError: as for `for_produce`.
        """
        self._check_free(topic)
        new = topic not in self._counts
        self._check_room(topic, new)
        self._check_name(topic, number + 1)
        log = self._directory.create(topic, number, KAFKA, topic_id, is_sole_copy=is_sole_copy)
        count = self._counts.get(topic)
        self._note(topic, number)
        if self._counts[topic] != count:
            self._announce(topic)
        return log

    def forget_copy(self, topic: str, partition: int) -> None:
        """A partition of which others have copies isn't here any more."""
        written = self._written.get(topic, [])
        if partition in written:
            written.remove(partition)
            if not written and topic not in self._deleting:
                del self._counts[topic], self._written[topic]
        self._tell(topic)  # it may have been the only copy: nobody is to say that it is here

    def _make(self, topic: str, partition: int, log_format: LogFormat | None = None) -> Log:
        self._check_free(topic)
        check_topic_name(topic, self._config.max_topic_name_length)
        self._check_here(topic, partition)
        self._check_partition(topic, partition)
        if not self._owns(topic, partition):
            raise WrongPartitionError(
                f"partition {partition} of topic {quoted(topic)} is another broker's"
            )
        new = topic not in self._counts
        if new:
            self.check_creatable(topic)
        self._check_room(topic, new)
        self._check_name(topic, self.partition_count(topic))
        log = self._directory.create(topic, partition, log_format)
        self._note(topic, partition)
        return log

    def _check_free(self, topic: str) -> None:
        if self.stopping:
            raise BrokerStoppingError("the broker is stopping")
        if topic in self._deleting:
            raise TopicBeingDeletedError(f"topic {quoted(topic)} is being deleted; try again")

    def _check_name(self, topic: str, partitions: int) -> None:
        if topic not in self._counts:  # 0.7 takes other names, and so did Hermes once
            check_kafka_topic_name(topic)
        check_new_topic_name(topic, self._config.max_topic_name_length, len(f"-{partitions - 1}"))

    def _check_room(self, topic: str, new: bool) -> None:
        limit = self._config.max_topics
        if new and len(self._counts) >= limit:
            raise TooManyTopicsError(
                f"topic {quoted(topic)} is not created: there are max_topics={limit} already"
            )
        limit = self._config.max_partitions
        if len(self._directory.logs) >= limit:
            raise TooManyTopicsError(
                f"no partition of {quoted(topic)} is created: "
                f"there are max_partitions={limit} already"
            )

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self.partition_count(topic)
        if not 0 <= partition < count:
            raise WrongPartitionError(
                f"topic {quoted(topic)} has partitions 0 to {count - 1}, not {partition}"
            )

    def _note(self, topic: str, partition: int) -> None:
        known = self._counts.get(topic) or self._config.topic(topic).partitions
        self._counts[topic] = max(known, partition + 1)
        written = self._written.setdefault(topic, [])
        if partition not in written:
            insort(written, partition)


def wrong_format(topic: str, *, holds_records: bool = True) -> WrongFormatError:
    """For who wants messages of 0.7 where there are records, or the other way around."""
    if holds_records:
        return WrongFormatError(
            f"topic {quoted(topic)} has Kafka's format: use a client that knows record batches"
        )
    return WrongFormatError(f"topic {quoted(topic)} has 0.7's format, which has no record batches")


def size_of(log: Log) -> int:
    """How many bytes a log has; of 0.7's format that is what its offsets say."""
    return log.size_bytes if log.counts_messages else log.end_offset - log.earliest
