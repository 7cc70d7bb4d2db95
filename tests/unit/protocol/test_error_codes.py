import pytest

from hermes import errors
from hermes.protocol import ErrorCode, code_for, error_for


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (-1, errors.UnknownBrokerError),
        (1, errors.OffsetOutOfRangeBrokerError),
        (2, errors.InvalidMessageBrokerError),
        (3, errors.WrongPartitionError),
        (4, errors.InvalidFetchSizeError),
        (64, errors.MessageTooLargeBrokerError),
        (65, errors.UnknownTopicError),
        (66, errors.InvalidTopicBrokerError),
        (67, errors.StorageUnavailableError),
        (68, errors.UnsupportedRequestVersionError),
        (69, errors.OutcomeUnknownError),
        (70, errors.BrokerStoppingError),
        (71, errors.TopicBeingDeletedError),
        (72, errors.TooManyTopicsError),
        (73, errors.AnswerTooLargeError),
        (74, errors.TopicExistsError),
        (75, errors.SettingRefusedError),
        (76, errors.SourceOverlapError),
        (77, errors.SourceGapError),
        (78, errors.InvalidSourceError),
        (83, errors.TooFewReplicasError),
        (84, errors.NotLeaderError),
    ],
)
def test_codes_and_classes_map_both_ways(number, kind):
    error = error_for(number, "topic 'clicks' partition 3")

    assert type(error) is kind
    assert error.code == kind.code == number
    assert str(error).startswith("topic 'clicks' partition 3: ")
    assert code_for(error) == number


def test_the_table_covers_every_code():
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            assert error_for(code).code == code
            assert str(error_for(code))


def test_zero_is_no_error():
    with pytest.raises(ValueError):
        error_for(0)


def test_an_unknown_code_is_carried_along():
    error = error_for(1234)

    assert type(error) is errors.UnknownBrokerError
    assert error.code == 1234
    assert "1234" in str(error)
    assert errors.UnknownBrokerError.code == -1
    assert code_for(error) is ErrorCode.UNKNOWN


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OffsetOutOfRangeError(5, 0, 3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (errors.MessageTooLargeError(11, 10), ErrorCode.MESSAGE_TOO_LARGE),
        (errors.InvalidMessageError("bad"), ErrorCode.INVALID_MESSAGE),
        (errors.ExpandedTooLargeError("bomb"), ErrorCode.INVALID_MESSAGE),
        (errors.InvalidTopicError("a/b"), ErrorCode.INVALID_TOPIC),
        (errors.DiskFullError("full"), ErrorCode.STORAGE_UNAVAILABLE),
        (errors.LogOfflineError("offline"), ErrorCode.STORAGE_UNAVAILABLE),
        (errors.UncertainAppendError("half"), ErrorCode.OUTCOME_UNKNOWN),
        (errors.StorageError("no descriptor"), ErrorCode.STORAGE_UNAVAILABLE),
        (errors.WrongPartitionError("no"), ErrorCode.WRONG_PARTITION),
        (errors.BrokerStoppingError("bye"), ErrorCode.STOPPING),
        (errors.TooFewReplicasError("one"), ErrorCode.TOO_FEW_REPLICAS),
        (errors.NotLeaderError("it is another's"), ErrorCode.NOT_LEADER),
        (errors.RemoteProtocolError("what"), ErrorCode.UNKNOWN),
        (KeyError("a fault of our own"), ErrorCode.UNKNOWN),
    ],
)
def test_what_a_broker_meets_has_a_code(error, code):
    assert code_for(error) is code


def test_only_what_may_succeed_later_is_retriable():
    retriable = {
        code for code in ErrorCode if code is not ErrorCode.NONE and error_for(code).retriable
    }

    assert retriable == {67, 69, 70, 71, 83, 84}


def test_what_a_broker_says_beside_the_code_is_told():
    code = ErrorCode.STORAGE_UNAVAILABLE
    text = "topic 't': the broker could not store it (no room {}); nothing was written"
    assert str(error_for(code, "topic 't'", "no room {}")) == text
    assert "is full or failing" in str(error_for(code, "topic 't'"))
    assert str(error_for(ErrorCode.UNKNOWN_TOPIC, "", "{0}")) == "the topic does not exist"
