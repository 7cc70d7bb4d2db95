"""Every public exception of Hermes, in one tree under `HermesError`. Imports nothing.

The branches say whose fault it is and so what the caller can do: `ConfigError` (the operator's
files), `PluginError` (an installed package), `ProtocolError` (bytes on a wire: ours or the
peer's), `StorageError` (a disk), `BrokerError` (an answer of a broker; it carries the wire's code
and whether trying again can help), `ClientError` (a broker that can't be reached or understood),
`CoordinationError` (ZooKeeper: out of reach, or holding what can't be used).
"""


class HermesError(Exception):
    """The root: catching it catches whatever Hermes raises on purpose."""


# -- configuration and plugins ------------------------------------------------------------------


class ConfigError(HermesError):
    """A setting is unknown, of the wrong type or out of range; the text names the key.

    Attributes:
        key: the dotted path of the setting, for instance `topics.clicks.partitions`; empty when
            the file as a whole is meant.
        message: what is wrong and what was expected, without the key.
        source: the file's name as it was given; empty when there is none.
    """

    def __init__(self, key: str, message: str, *, source: str = "") -> None:
        super().__init__(": ".join(part for part in (source, key, message) if part))
        self.key = key
        self.message = message
        self.source = source


class PluginError(HermesError):
    """A plugin can't be found, loaded or used; the text names group, entry and distribution."""


# -- protocol -----------------------------------------------------------------------------------


class ProtocolError(HermesError):
    """Bytes that break the wire format, or a value that the format can't hold."""


class LocalProtocolError(ProtocolError):
    """Our side asked for something that can't be put on the wire: a fault of the caller."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that break the format. A broker closes the connection, as 0.7 does."""


class InvalidMessageError(ProtocolError):
    """A stored or received message is damaged: CRC, magic, codec, length or compressed payload.

    Attributes:
        offset: where the bad message starts: absolute in a partition's log when it was fetched,
            relative to the message set when it was about to be appended; None when not known.
        next_offset: where the next good message starts; None when none was found in what was read.
    """

    def __init__(
        self, message: str, *, offset: int | None = None, next_offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.next_offset = next_offset


class MessageTooLargeError(ProtocolError):
    """A payload is larger than the limit in force; the whole set is dropped.

    Attributes:
        size_bytes: the payload's size.
        limit_bytes: the limit.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a message of {size_bytes} bytes is larger than max_message_bytes={limit_bytes}"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ExpandedTooLargeError(InvalidMessageError):
    """A compressed set expands beyond the limit (a decompression bomb, or a limit too small)."""


class InvalidTopicError(ProtocolError):
    """A topic name that 0.7, the file system or ZooKeeper can't hold; the text says which."""


# -- storage ------------------------------------------------------------------------------------


class StorageError(HermesError):
    """A log, a segment or the data directory could not do what was asked."""


class OffsetOutOfRangeError(StorageError):
    """The offset is below the earliest or beyond the visible end of the partition's log.

    Attributes:
        offset: the offset asked for.
        earliest: the first offset there is.
        latest: the high watermark.
    """

    def __init__(self, offset: int, earliest: int, latest: int) -> None:
        super().__init__(f"offset {offset} is outside the log: it holds [{earliest}, {latest}]")
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class CorruptLogError(StorageError):
    """Files of one partition do not fit together (a missing segment, say). The others go on."""


class LogOfflineError(StorageError):
    """This one partition is out of service until it is re-opened and recovered.

    An I/O error took it out, or its files are not those that were opened.
    """


class UncertainAppendError(LogOfflineError):
    """The disk failed in the middle of an append: its bytes may or may not be there later."""


class DiskFullError(StorageError):
    """No room was left; nothing of the append remains. Writes resume when there is room."""


class DataDirectoryLockedError(StorageError):
    """Another process holds the data directory; the text names it where known."""


# -- answers of a broker ------------------------------------------------------------------------


class BrokerError(HermesError):
    """A broker answered with an error code.

    Attributes:
        code: the int16 on the wire; -1 to 4 are Kafka 0.7's, 64 and above are Hermes' own.
        retriable: whether the same request may succeed later without a change.
    """

    code: int = -1
    retriable: bool = False


class UnknownBrokerError(BrokerError):
    """Code -1: the broker could not say more (an illegal topic name, or a fault of its own)."""

    code = -1


class OffsetOutOfRangeBrokerError(BrokerError):
    """Code 1: the offset is below the earliest or beyond the latest; ask for the valid ones."""

    code = 1


class InvalidMessageBrokerError(BrokerError):
    """Code 2: a message that was sent or fetched is damaged."""

    code = 2


class WrongPartitionError(BrokerError):
    """Code 3: the topic has no such partition on this broker."""

    code = 3


class InvalidFetchSizeError(BrokerError):
    """Code 4: the maximum size of a fetch is negative."""

    code = 4


class MessageTooLargeBrokerError(BrokerError):
    """Code 64: a payload is above the broker's max_message_bytes; the set was dropped."""

    code = 64


class UnknownTopicError(BrokerError):
    """Code 65: the topic doesn't exist and the broker does not create topics on produce."""

    code = 65


class InvalidTopicBrokerError(BrokerError):
    """Code 66: the topic's name is not allowed."""

    code = 66


class StorageUnavailableError(BrokerError):
    """Code 67: the broker can't store it now; nothing was written. Try again later.

    Its disk is full or failing, the partition is out of service, or it has no file descriptor left.
    """

    code = 67
    retriable = True


class UnsupportedRequestVersionError(BrokerError):
    """Code 68: this broker does not know this version (or acks level) of the request."""

    code = 68


class OutcomeUnknownError(BrokerError):
    """Code 69: the messages may or may not be stored.

    They were appended, but were not on disk in time, or the flush failed, or the topic was deleted
    meanwhile. Sending them again may store them twice.
    """

    code = 69
    retriable = True


#: What it was called before it meant more than lateness.
RequestTimedOutError = OutcomeUnknownError


class BrokerStoppingError(BrokerError):
    """Code 70: the broker is shutting down; nothing was written. Go to another one, or wait."""

    code = 70
    retriable = True


class TopicBeingDeletedError(BrokerError):
    """Code 71: the topic is being deleted; nothing was written. Try again when that is over."""

    code = 71
    retriable = True


class TooManyTopicsError(BrokerError):
    """Code 72: the broker has as many topics, or partitions, as it may; nothing was written."""

    code = 72


class AnswerTooLargeError(BrokerError):
    """Code 73: the answer would be larger than the broker makes one; ask for less at a time."""

    code = 73


# -- client -------------------------------------------------------------------------------------


class ClientError(HermesError):
    """The client library could not complete a call."""


class ArgumentError(ClientError, TypeError):
    """An argument is not what it should be; the text names it, and says what was expected."""


class BrokerUnavailableError(ClientError):
    """No connection to the broker could be made, or it broke; the text says which address."""


class BrokerNotReachedError(BrokerUnavailableError):
    """There was no connection for the request, so nothing of it was sent."""


class BrokerTimeoutError(ClientError):
    """The broker did not answer within the configured time."""


class MessageLargerThanFetchError(ClientError):
    """A message is larger than the largest fetch allowed.

    Attributes:
        offset: where the message starts.
        size_bytes: what the message needs, length prefix included, where known.
    """

    def __init__(self, message: str, *, offset: int, size_bytes: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.size_bytes = size_bytes


class EncodingError(ClientError):
    """A value can't be encoded, or a payload can't be decoded, by the plugin that was chosen."""


class RoutingError(ClientError):
    """No partition can be chosen for a message; the text says which setting would allow it."""


class QueueFullError(ClientError):
    """The asynchronous producer's queue had no room in time; the message was not accepted."""


class DeliveryError(ClientError):
    """Messages that an asynchronous producer had accepted were not sent, and nobody had looked.

    `flush` and `close` raise it for what failed since the last time, unless a callback handler, or
    a look at its handle, has told of it. Its cause is what one of the messages failed with.

    Attributes:
        failed_count: how many messages.
    """

    def __init__(self, message: str, *, failed_count: int) -> None:
        super().__init__(message)
        self.failed_count = failed_count


class ConsumerTimeoutError(ClientError):
    """A stream had no message for as long as `consumer_timeout` says; it can be asked again."""


class DataLossError(ClientError):
    """Messages that were to be read are gone: by retention, or with a topic that was created again.

    Nothing was skipped. Start from offsets that are there, or set failOnDataLoss to false to step
    over what is gone.
    """


class OffsetResetError(ClientError):
    """A group's offset is missing or out of range, and `auto_offset_reset` is "fail"."""


# -- coordination -------------------------------------------------------------------------------


class CoordinationError(HermesError):
    """ZooKeeper, or what stands in it, kept something from being done."""


class CoordinationUnavailableError(CoordinationError):
    """ZooKeeper did not answer in time, or the session ended meanwhile. Try again."""


class InvalidNodeError(CoordinationError):
    """A node in ZooKeeper holds what nobody can use; the text names its path and its value."""


class ConsumerIdError(InvalidNodeError):
    """An owner is written without the number of its stream, as other clients do."""


class IdInUseError(CoordinationError):
    """The id of a broker or of a consumer is registered by another that lives."""


class GroupActiveError(CoordinationError):
    """The group has members; what was asked is only safe when it has none."""


# -- loads --------------------------------------------------------------------------------------


class LoadError(HermesError):
    """A load did not come about. Nothing was committed; the same load can be run again."""


class LoadConflictError(LoadError):
    """Another run has committed the same load first; its data are the ones that count."""


class LoadTargetError(LoadError):
    """A directory can't be loaded into or read: it is foreign, or a file in it is damaged."""
