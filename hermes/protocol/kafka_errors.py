"""Kafka's error codes, and which of them says what went wrong here.

Source: `org.apache.kafka.common.protocol.Errors` of Kafka 4.
"""

from collections.abc import Sequence
from enum import IntEnum, unique
from typing import Any, Final

from hermes.errors import (
    BatchTooLargeError,
    BrokerStoppingError,
    ConfigError,
    CoordinationError,
    CoordinatorFencedError,
    CorruptBatchError,
    CorruptLogError,
    DamagedMessagesError,
    EarlierBatchAwaitedError,
    ExpandedTooLargeError,
    HermesError,
    InvalidMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionStateError,
    MessageTooLargeError,
    NotAuthorizedError,
    NotLeaderError,
    NoTransactionError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    SettingRefusedError,
    StorageError,
    TooFewReplicasError,
    TooManyTopicsError,
    TopicBeingDeletedError,
    TopicExistsError,
    UncertainAppendError,
    UnknownTopicError,
    WrongPartitionError,
)


@unique
class Code(IntEnum):
    """Kafka's error codes: those that Hermes answers with."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


#: What was sent may be stored, and is to be sent again. KAFKA_STORAGE_ERROR says that it isn't:
#: librdkafka tells the application so, should the message time out.
MAY_BE_STORED: Final = Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class KafkaError(HermesError):
    """A request, or an entry of it, is answered with an error.

    Not every response has room for the message, which is for people.
    """

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


def invalid_request(message: str) -> KafkaError:
    return KafkaError(Code.INVALID_REQUEST, message)


def unknown_topic() -> KafkaError:
    return KafkaError(
        Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )


# The special before the general. What a client can repeat has a code that Kafka's clients repeat.
_CODES: Final[tuple[tuple[type[BaseException], Code], ...]] = (
    (CorruptBatchError, Code.CORRUPT_MESSAGE),
    (BatchTooLargeError, Code.MESSAGE_TOO_LARGE),
    (InvalidRecordError, Code.INVALID_RECORD),
    (InvalidTimestampError, Code.INVALID_TIMESTAMP),
    (OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
    (MessageTooLargeError, Code.MESSAGE_TOO_LARGE),
    (ExpandedTooLargeError, Code.INVALID_RECORD),
    (InvalidMessageError, Code.CORRUPT_MESSAGE),
    (InvalidTopicError, Code.INVALID_TOPIC_EXCEPTION),
    (UnknownTopicError, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (WrongPartitionError, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicBeingDeletedError, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicExistsError, Code.TOPIC_ALREADY_EXISTS),
    (TooManyTopicsError, Code.POLICY_VIOLATION),
    (SettingRefusedError, Code.INVALID_CONFIG),
    (ConfigError, Code.INVALID_CONFIG),
    (BrokerStoppingError, Code.NOT_LEADER_OR_FOLLOWER),
    (NotAuthorizedError, Code.TOPIC_AUTHORIZATION_FAILED),
    (CoordinationError, Code.REQUEST_TIMED_OUT),
    (NotLeaderError, Code.NOT_LEADER_OR_FOLLOWER),
    (TooFewReplicasError, Code.NOT_ENOUGH_REPLICAS),
    (OutOfOrderSequenceError, Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (InvalidProducerEpochError, Code.INVALID_PRODUCER_EPOCH),
    # Nobody may have a transaction: there are none.
    (NoTransactionError, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (InvalidTransactionStateError, Code.INVALID_TXN_STATE),
    (CoordinatorFencedError, Code.TRANSACTION_COORDINATOR_FENCED),
    (CorruptLogError, Code.CORRUPT_MESSAGE),
    (DamagedMessagesError, Code.CORRUPT_MESSAGE),
    (EarlierBatchAwaitedError, Code.KAFKA_STORAGE_ERROR),
    (UncertainAppendError, MAY_BE_STORED),
    (StorageError, Code.KAFKA_STORAGE_ERROR),
)


#: How much is said for people of an error. Clients' names may stand in it, which are as long as a
#: text of older versions can be; and more than fits into one can't be encoded.
MESSAGE_LENGTH: Final = 1000


def error_fields(error: HermesError | None = None) -> dict[str, Any]:
    """What a response says of an error or of none: its code, and a message for people.

    Whoever answers many entries keeps these, not the errors: an error has the frames that raised
    it, and among them the one that keeps it.
    """
    if error is None:
        return {"error_code": Code.NONE, "error_message": None}
    return {"error_code": code_of(error), "error_message": str(error)[:MESSAGE_LENGTH]}


def with_error(
    fields: Sequence[dict[str, Any]], error: HermesError, count: int
) -> list[dict[str, Any]]:
    """What is said of `count` entries when an error ends a request; those before it had theirs."""
    ended = error_fields(error)
    before = [each if each["error_code"] else ended for each in fields]
    return before + [ended] * (count - len(before))


def code_of(error: BaseException) -> Code:
    """Find the code for an error; UNKNOWN_SERVER_ERROR for what is not in the table."""
    if isinstance(error, KafkaError):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.UNKNOWN_SERVER_ERROR
