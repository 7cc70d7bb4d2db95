"""Error codes on the wire, and the one two-way table between them and the exceptions.

Source: Kafka 0.7's ErrorMapping for -1 to 4; 64 and above are Hermes' own and appear only in
responses to Hermes' own requests, so that a 0.7 client never sees them.
"""

from enum import IntEnum
from typing import Final

from hermes.errors import (
    AnswerTooLargeError,
    BatchTooLargeError,
    BrokerError,
    BrokerStoppingError,
    ConfigError,
    InvalidBatchError,
    InvalidFetchSizeError,
    InvalidMessageBrokerError,
    InvalidMessageError,
    InvalidRecordError,
    InvalidSourceError,
    InvalidTimestampError,
    InvalidTopicBrokerError,
    InvalidTopicError,
    MessageTooLargeBrokerError,
    MessageTooLargeError,
    NotAuthenticatedError,
    NotAuthorizedError,
    NotLeaderError,
    OffsetOutOfRangeBrokerError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    RefusedRecordsError,
    SettingRefusedError,
    SourceGapError,
    SourceOverlapError,
    StorageError,
    StorageUnavailableError,
    TooFewReplicasError,
    TooManyTopicsError,
    TopicBeingDeletedError,
    TopicExistsError,
    UncertainAppendError,
    UnknownBrokerError,
    UnknownTopicError,
    UnsupportedRequestVersionError,
    WrongFormatError,
    WrongPartitionError,
)


class ErrorCode(IntEnum):
    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    MESSAGE_TOO_LARGE = 64
    UNKNOWN_TOPIC = 65
    INVALID_TOPIC = 66
    STORAGE_UNAVAILABLE = 67
    UNSUPPORTED_VERSION = 68
    OUTCOME_UNKNOWN = 69
    STOPPING = 70
    TOPIC_BEING_DELETED = 71
    TOO_MANY_TOPICS = 72
    ANSWER_TOO_LARGE = 73
    TOPIC_EXISTS = 74
    SETTING_REFUSED = 75
    SOURCE_OVERLAP = 76
    SOURCE_GAP = 77
    INVALID_SOURCE = 78
    NOT_AUTHENTICATED = 79
    NOT_AUTHORIZED = 80
    WRONG_FORMAT = 81
    REFUSED_RECORDS = 82
    TOO_FEW_REPLICAS = 83
    NOT_LEADER = 84


_ERRORS: Final[dict[ErrorCode, tuple[type[BrokerError], str]]] = {
    ErrorCode.UNKNOWN: (UnknownBrokerError, "the broker gave no reason"),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        OffsetOutOfRangeBrokerError,
        "the offset is not within the partition's log",
    ),
    ErrorCode.INVALID_MESSAGE: (InvalidMessageBrokerError, "a message is damaged"),
    ErrorCode.WRONG_PARTITION: (WrongPartitionError, "the topic has no such partition"),
    ErrorCode.INVALID_FETCH_SIZE: (InvalidFetchSizeError, "the fetch size is not valid"),
    ErrorCode.MESSAGE_TOO_LARGE: (
        MessageTooLargeBrokerError,
        "a message is larger than the broker's max_message_bytes, or a batch than the topic's "
        "max_batch_bytes",
    ),
    ErrorCode.UNKNOWN_TOPIC: (UnknownTopicError, "the topic does not exist"),
    ErrorCode.INVALID_TOPIC: (InvalidTopicBrokerError, "the topic's name is not allowed"),
    ErrorCode.STORAGE_UNAVAILABLE: (
        StorageUnavailableError,
        "the broker's disk is full or failing, or its descriptors are used up; nothing was written",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        UnsupportedRequestVersionError,
        "the broker does not know this version of the request",
    ),
    ErrorCode.OUTCOME_UNKNOWN: (
        OutcomeUnknownError,
        "the outcome is not known; the messages may or may not be stored",
    ),
    ErrorCode.STOPPING: (BrokerStoppingError, "the broker is stopping; nothing was written"),
    ErrorCode.TOPIC_BEING_DELETED: (
        TopicBeingDeletedError,
        "the topic is being deleted; nothing was written",
    ),
    ErrorCode.TOO_MANY_TOPICS: (
        TooManyTopicsError,
        "the broker has as many topics as it may; nothing was written",
    ),
    ErrorCode.ANSWER_TOO_LARGE: (
        AnswerTooLargeError,
        "the response would be too large; ask for less at a time",
    ),
    ErrorCode.TOPIC_EXISTS: (TopicExistsError, "the topic exists already"),
    ErrorCode.SETTING_REFUSED: (
        SettingRefusedError,
        "the broker refused a setting; nothing was changed",
    ),
    ErrorCode.SOURCE_OVERLAP: (
        SourceOverlapError,
        "the partition has a part of the source's range already; nothing was written",
    ),
    ErrorCode.SOURCE_GAP: (
        SourceGapError,
        "the source's range doesn't begin where the partition's position is; nothing was written",
    ),
    ErrorCode.INVALID_SOURCE: (
        InvalidSourceError,
        "the source's name or range is not valid, or the partition has too many sources; "
        "nothing was written",
    ),
    ErrorCode.NOT_AUTHENTICATED: (
        NotAuthenticatedError,
        "the broker wants to know who asks: give a user and a password",
    ),
    ErrorCode.NOT_AUTHORIZED: (
        NotAuthorizedError,
        "the broker's access rules don't allow it; nothing was done",
    ),
    ErrorCode.WRONG_FORMAT: (
        WrongFormatError,
        "the topic's format takes other bytes: record batches for one of Kafka's, messages for "
        "one of 0.7's; nothing was written",
    ),
    ErrorCode.REFUSED_RECORDS: (
        RefusedRecordsError,
        "the topic takes no such messages: it is compacted and needs a key with each, or they "
        "are damaged; nothing was written",
    ),
    ErrorCode.TOO_FEW_REPLICAS: (
        TooFewReplicasError,
        "fewer copies are in sync than the topic's min_insync_replicas; nothing was written",
    ),
    ErrorCode.NOT_LEADER: (
        NotLeaderError,
        "another broker leads the partition, or nobody does at the moment; nothing was done",
    ),
}

# What can go wrong in the broker itself, the special before the general. A BrokerError has its
# code already.
_CODES: Final[tuple[tuple[type[BaseException], ErrorCode], ...]] = (
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (MessageTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidMessageError, ErrorCode.INVALID_MESSAGE),
    (BatchTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (InvalidRecordError, ErrorCode.REFUSED_RECORDS),
    (InvalidTimestampError, ErrorCode.REFUSED_RECORDS),
    (InvalidBatchError, ErrorCode.INVALID_MESSAGE),
    (InvalidTopicError, ErrorCode.INVALID_TOPIC),
    (UncertainAppendError, ErrorCode.OUTCOME_UNKNOWN),
    (StorageError, ErrorCode.STORAGE_UNAVAILABLE),
    (ConfigError, ErrorCode.SETTING_REFUSED),
)


# Of errors for which a broker may say why.
_EXPLAINED: Final = {
    ErrorCode.STORAGE_UNAVAILABLE: "the broker could not store it ({}); nothing was written",
    ErrorCode.OUTCOME_UNKNOWN: "the outcome is not known ({}); the messages may or may not be "
    "stored",
}


def error_for(code: int, detail: str = "", why: str = "") -> BrokerError:
    """Make the exception for a code in a broker's response; ValueError for 0, which is no error.

    Args:
        code: an unknown one gives an `UnknownBrokerError` that carries it.
        detail: what was asked for, for instance `topic 'clicks' partition 3`; put before the
            reason.
        why: what the broker says beside the code, for instance that its disk is full; put into the
            reason, where that is open.
    """
    if code == ErrorCode.NONE:
        raise ValueError("0 means that there was no error")
    if code in _ERRORS:
        kind, reason = _ERRORS[ErrorCode(code)]
        if why:
            reason = _EXPLAINED.get(ErrorCode(code), reason).replace("{}", why)
    else:
        kind, reason = UnknownBrokerError, f"the broker answered with the unknown code {code}"
    error = kind(f"{detail}: {reason}" if detail else reason)
    error.code = int(code)
    return error


def code_for(exc: BaseException) -> ErrorCode:
    """The code that responds to an exception; UNKNOWN for what is not in the table."""
    if isinstance(exc, BrokerError):
        return ErrorCode(exc.code) if exc.code in _ERRORS else ErrorCode.UNKNOWN
    for kind, code in _CODES:
        if isinstance(exc, kind):
            return code
    return ErrorCode.UNKNOWN
