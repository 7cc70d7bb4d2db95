"""Every public exception of Hermes, in one tree under `HermesError`. Imports nothing.

The branches say whose fault it is, and so what the caller can do: `ConfigError` (the operator's
files), `PluginError` (an installed package), `ProtocolError` (bytes on a wire: ours or the
peer's), `StorageError` (a disk), `BrokerError` (a response of a broker; it has the code on the
wire and says whether a retry can help), `ClientError` (a broker that can't be reached or
understood), `CoordinationError` (ZooKeeper is unavailable, or holds something unusable).
"""


class HermesError(Exception):
    """The root: catching it catches everything that Hermes raises on purpose."""


# -- configuration and plugins ------------------------------------------------------------------


class ConfigError(HermesError):
    """A setting is unknown, of the wrong type or out of range; the text names the key.

    Attributes:
        key: the dotted path of the setting, for instance `topics.clicks.partitions`; empty for the
            file as a whole.
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
    """Bytes that violate the wire format, or a value that the format can't hold."""


class LocalProtocolError(ProtocolError):
    """This side's request can't be encoded: the caller's mistake."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the wire format. A broker closes the connection, as 0.7 does."""


class InvalidMessageError(ProtocolError):
    """A stored or received message is damaged: CRC, magic, codec, length or compressed payload.

    Attributes:
        offset: where the bad message starts: absolute in a partition's log if it was fetched,
            relative to the message set if it was to be appended; None if unknown.
        next_offset: where the next valid message starts; None if none was found in what was read.
    """

    def __init__(
        self, message: str, *, offset: int | None = None, next_offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.next_offset = next_offset


class MessageTooLargeError(ProtocolError):
    """A payload is larger than the limit; the whole set is dropped."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a message of {size_bytes} bytes is larger than max_message_bytes={limit_bytes}"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ExpandedTooLargeError(InvalidMessageError):
    """A compressed set expands beyond the limit (a decompression bomb, or the limit is too low)."""


class InvalidBatchError(ProtocolError):
    """A record batch (the format of `kafka` topics) can't be accepted; its subclasses say why.

    Attributes:
        records: the indexes of the messages at fault, the first hundred of them; empty where it is
            the batch as a whole.
    """

    def __init__(self, message: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.records = records


class CorruptBatchError(InvalidBatchError):
    """Its bytes are damaged: length, magic or CRC. Kafka's CORRUPT_MESSAGE."""


class InvalidRecordError(InvalidBatchError):
    """It holds what is invalid, or what no producer may send. Kafka's INVALID_RECORD."""


class InvalidTimestampError(InvalidBatchError):
    """It has timestamps that are for the broker to set. Kafka's INVALID_TIMESTAMP."""


class BatchTooLargeError(InvalidBatchError):
    """It is larger than its topic allows. Kafka's MESSAGE_TOO_LARGE."""


class InvalidTopicError(ProtocolError):
    """A topic name that 0.7, the file system or ZooKeeper can't hold; the text says which."""


# -- storage ------------------------------------------------------------------------------------


class StorageError(HermesError):
    """A log, a segment or the data directory could not do what was asked."""


class EpochEndedError(StorageError):
    """This broker leads the partition no more; what it has appended may be kept by others."""


class OffsetOutOfRangeError(StorageError):
    """The offset is below the earliest one or above the high watermark of the partition's log.

    Attributes:
        offset: the requested offset.
        earliest: the earliest offset.
        latest: the high watermark.
    """

    def __init__(self, offset: int, earliest: int, latest: int) -> None:
        super().__init__(f"offset {offset} is outside the log: it holds [{earliest}, {latest}]")
        self.offset = offset
        self.earliest = earliest
        self.latest = latest


class CorruptLogError(StorageError):
    """The files of one partition don't fit together (one may be missing). Others are served."""


class DamagedMessagesError(StorageError):
    """What was at an offset is damaged, and there is no other copy: read on from behind it."""


class LogOfflineError(StorageError):
    """One partition is offline until it is re-opened and recovered.

    There was an I/O error, or its files are not those that were opened.
    """


class UncertainAppendError(LogOfflineError):
    """The disk failed in the middle of an append: its bytes may or may not be stored."""


class DiskFullError(StorageError):
    """The disk is full; nothing of the append remains. Writes resume when there is space."""


class CorruptEntriesError(StorageError):
    """The file of the altered settings of topics is damaged; the text says what to do."""


class DataDirectoryLockedError(StorageError):
    """Another process is using the data directory; the text names it if possible."""


# -- responses of a broker ----------------------------------------------------------------------


class BrokerError(HermesError):
    """A broker responded with an error code.

    Attributes:
        code: the int16 on the wire; -1 to 4 are Kafka 0.7's, 64 and above are Hermes' own.
        retriable: whether the same request may succeed later.
    """

    code: int = -1
    retriable: bool = False


class UnknownBrokerError(BrokerError):
    """Code -1: the broker can't say more (an invalid topic name, or an internal fault)."""

    code = -1


class OffsetOutOfRangeBrokerError(BrokerError):
    """Code 1: the offset is below the earliest or above the latest; ask for the valid ones."""

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
    """Code 64: a payload exceeds the broker's max_message_bytes; the set was dropped."""

    code = 64


class UnknownTopicError(BrokerError):
    """Code 65: the topic doesn't exist, and the broker doesn't create topics on produce."""

    code = 65


class InvalidTopicBrokerError(BrokerError):
    """Code 66: the topic's name is not allowed."""

    code = 66


class StorageUnavailableError(BrokerError):
    """Code 67: the broker can't store it now; nothing was written. Retry later.

    Its disk is full or failing, the partition is offline, or it has run out of file descriptors.
    """

    code = 67
    retriable = True


class UnsupportedRequestVersionError(BrokerError):
    """Code 68: the broker doesn't support this version (or acks level) of the request."""

    code = 68


class OutcomeUnknownError(BrokerError):
    """Code 69: the messages may or may not be stored.

    They were appended, but weren't on disk in time, or the flush failed, or the topic was deleted
    in between. Sending them again may store them twice.
    """

    code = 69
    retriable = True


class BrokerStoppingError(BrokerError):
    """Code 70: the broker is shutting down; nothing was written. Use another one, or wait."""

    code = 70
    retriable = True


class TopicBeingDeletedError(BrokerError):
    """Code 71: the topic is being deleted; nothing was written. Retry when that is done."""

    code = 71
    retriable = True


class TooManyTopicsError(BrokerError):
    """Code 72: the broker's limit of topics or partitions is reached; nothing was written."""

    code = 72


class AnswerTooLargeError(BrokerError):
    """Code 73: the response would exceed the broker's limit; ask for less at a time."""

    code = 73


class TopicExistsError(BrokerError):
    """Code 74: a topic that was to be created exists already."""

    code = 74


class SettingRefusedError(BrokerError):
    """Code 75: a setting is unknown or wrong, or can't be changed so; nothing was changed."""

    code = 75


class SourceOverlapError(BrokerError):
    """Code 76: the partition has a part of a mirrored range; cut it at the position, send again."""

    code = 76


class SourceGapError(BrokerError):
    """Code 77: a mirrored range was to follow the one before, which the partition doesn't have."""

    code = 77


class InvalidSourceError(BrokerError):
    """Code 78: a source's name or range is not valid, or the partition has too many sources."""

    code = 78


class NotAuthenticatedError(BrokerError):
    """Code 79: the client is not authenticated; nothing was done.

    The user or the password is wrong, or a listener that wants them was given none. The same
    attempt fails again.
    """

    code = 79


class NotAuthorizedError(BrokerError):
    """Code 80: the principal may not do this, by the access rules; nothing was done."""

    code = 80


class WrongFormatError(BrokerError):
    """Code 81: the topic's format takes other bytes; nothing was done.

    Topics of Kafka's format hold record batches, those of 0.7's messages.
    """

    code = 81


class RefusedRecordsError(BrokerError):
    """Code 82: the topic doesn't take such messages; the whole set was refused.

    It is compacted, and a message has no key; or a batch holds what no messages are.
    """

    code = 82


class TooFewReplicasError(BrokerError):
    """Code 83: fewer copies are in sync than `min_insync_replicas`; nothing was appended."""

    code = 83
    retriable = True


class NotLeaderError(BrokerError):
    """Code 84: another broker leads the partition, or nobody; nothing was done. Look again who."""

    code = 84
    retriable = True


# -- client -------------------------------------------------------------------------------------


class ClientError(HermesError):
    """The client library could not complete a call."""


class NoCoordinationError(ClientError):
    """The broker takes no part in coordination, so groups can't be found through it."""


class ArgumentError(ClientError, TypeError):
    """An argument is invalid; the text names it, and says what was expected."""


class BrokerUnavailableError(ClientError):
    """The broker can't be connected to, or the connection broke; the text names the address.

    Attributes:
        closes_upon_all: whether it accepts connections and closes them on any request.
    """

    closes_upon_all = False


class BrokerNotReachedError(BrokerUnavailableError):
    """There was no connection for the request, so none of it was sent."""


class BrokerNotTrustedError(BrokerNotReachedError):
    """The TLS handshake failed; the text says why. Only a change of settings helps.

    The broker's certificate is of an unknown authority, has expired, or is for another host; or
    the broker refuses the client's; or there is no TLS on that port.
    """


class BrokerTimeoutError(ClientError):
    """The broker did not respond within the configured time."""


class MessageLargerThanFetchError(ClientError):
    """A message is larger than the largest allowed fetch.

    Attributes:
        offset: where the message starts.
        size_bytes: the message's size, including its length prefix; None if unknown.
    """

    def __init__(self, message: str, *, offset: int, size_bytes: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset
        self.size_bytes = size_bytes


class EncodingError(ClientError):
    """The chosen plugin can't encode a value, or can't decode a payload."""


class SchemaRegistryError(ClientError):
    """A schema registry refused a request, or answered as no registry does.

    Attributes:
        status: the response's HTTP status.
        code: the registry's own code, such as 42201; 0 if it gave none.
    """

    def __init__(self, message: str, *, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class UnknownSchemaError(SchemaRegistryError):
    """The registry has no such schema, subject or version."""


class IncompatibleSchemaError(SchemaRegistryError):
    """A schema doesn't fit the subject's earlier ones. The registry has changed nothing."""


class RegistryUnavailableError(ClientError):
    """No address of the schema registry answered in time. The same may succeed later."""


class RoutingError(ClientError):
    """No partition can be chosen for a message; the text says which setting would allow it."""


class QueueFullError(ClientError):
    """The asynchronous producer's queue stayed full for too long; the message was not accepted."""


class DeliveryError(ClientError):
    """Messages that an asynchronous producer had accepted were not sent.

    `flush` and `close` raise it for failures since the last call that neither a
    callback handler nor the message's handle has reported. Its cause is the failure of one of the
    messages.

    Attributes:
        failed_count: how many messages.
    """

    def __init__(self, message: str, *, failed_count: int) -> None:
        super().__init__(message)
        self.failed_count = failed_count


class ConsumerTimeoutError(ClientError):
    """A stream had no message for `consumer_timeout`; it can still be read."""


class DataLossError(ClientError):
    """Messages that were to be read are gone: by retention, or because the topic was re-created.

    Nothing was skipped. Start from offsets that exist, or set failOnDataLoss to false to skip what
    is gone.
    """


class MessageRejectedError(ClientError):
    """An application's function can't handle a message, and never will: no retry can help.

    The function that `RetryingConsumer` calls raises it; the message becomes a dead letter at once.
    """


class OffsetResetError(ClientError):
    """A group's offset is missing or out of range, and `auto_offset_reset` is "fail"."""


# -- coordination -------------------------------------------------------------------------------


class CoordinationError(HermesError):
    """ZooKeeper, or what it holds, prevented something."""


class CoordinationUnavailableError(CoordinationError):
    """ZooKeeper did not respond in time, or the session expired. Retry."""


class InvalidNodeError(CoordinationError):
    """A node in ZooKeeper has an unusable value; the text has its path and its value."""


class CoordinationNotAuthenticatedError(CoordinationError, NotAuthenticatedError):
    """ZooKeeper refuses the user or the password, or asks for them. Not retried."""


class CoordinationNotAuthorizedError(InvalidNodeError, NotAuthorizedError):
    """ZooKeeper refuses access to a node; the text names the node, the user and the remedy."""


class IdInUseError(CoordinationError):
    """Another live broker or consumer has registered the same id."""


class GroupActiveError(CoordinationError):
    """The group has members; the operation is only safe without any."""


# -- loads --------------------------------------------------------------------------------------


class LoadError(HermesError):
    """A load failed. Nothing was committed; the same load can be run again."""


class LoadConflictError(LoadError):
    """Another run committed the same load first; its data are valid."""


class LoadTargetError(LoadError):
    """A directory can't be loaded into or read: it isn't Hermes', or a file in it is damaged."""


# -- the audit ----------------------------------------------------------------------------------


class AuditEventError(HermesError):
    """A message of the topic hermes-audit is not an event that this version understands."""


class ProducerStateError(HermesError):
    """What an idempotent producer has sent doesn't follow on from what it sent before."""


class OutOfOrderSequenceError(ProducerStateError):
    """An earlier batch of the same producer is missing."""


class EarlierBatchAwaitedError(ProducerStateError):
    """An earlier batch of the same producer was refused, and has to be sent again first."""


class InvalidProducerEpochError(ProducerStateError):
    """The producer has started a new epoch since it sent this."""


class InvalidTransactionStateError(ProducerStateError):
    """A batch isn't part of the transaction that it would have to be part of."""


class NoTransactionError(InvalidTransactionStateError):
    """There is no transaction that a batch could be part of."""


class CoordinatorFencedError(ProducerStateError):
    """A later coordinator of transactions has taken over from the one that asks."""


class WrongStateError(HermesError):
    """A partition isn't in the state that a change of it needs; nothing was changed."""


class LastReplicaError(WrongStateError):
    """The last in-sync replica can't leave: nobody else is known to have everything."""


# -- what to do about them ----------------------------------------------------------------------

#: What asking a broker leads to that is down, on its way down or too slow: another may answer.
SILENT = (BrokerUnavailableError, BrokerTimeoutError)


def is_retriable(error: BaseException | None) -> bool:
    """Whether trying the same again may succeed: a broker restarts, say, or has moved."""
    if isinstance(error, BrokerError):
        return error.retriable
    if isinstance(error, BrokerNotTrustedError):
        return False
    return isinstance(error, (*SILENT, CoordinationUnavailableError))


def is_refusal(error: BaseException | None) -> bool:
    """Whether somebody was refused, or a broker was: until settings or rules change, for good."""
    return isinstance(
        error, NotAuthenticatedError | NotAuthorizedError | BrokerNotTrustedError | ConfigError
    )
