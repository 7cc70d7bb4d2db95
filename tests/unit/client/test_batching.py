"""Items into sets: grouping, order, sizes, and each item's outcome."""

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.client.batching import Batch, SendHandle
from hermes.client.grouping import Delivery, OutgoingSet, SetRules, TopicFormats
from hermes.client.sync_producer import SendResult
from hermes.client.topic_metadata import Target
from hermes.errors import BrokerTimeoutError, RoutingError, StorageUnavailableError
from hermes.protocol import Codec, MessageSet


def rules(codec: Codec = Codec.NONE, max_set: int = 1000, max_message: int = 1000) -> SetRules:
    return SetRules(lambda topic: codec, max_set, max_message, TopicFormats())


class ByKey:
    """A router for which a key is the partition's number; `only` answers `only_target`."""

    def __init__(self, only: Target | None = None) -> None:
        self.only = only
        self.asked = 0

    def choose(self, topic: str, key: object) -> Target:
        if key == "nowhere":
            raise RoutingError("nowhere")
        return Target(0, key if isinstance(key, int) else 0)

    def only_target(self, topic: str) -> Target | None:
        self.asked += 1
        return self.only


def batch_of(*items: object) -> Batch:
    """A batch of payloads, lists of payloads, and pairs of one of these and a key."""
    batch = Batch("a", started=0.0)
    for item in items:
        messages, key = item if isinstance(item, tuple) else (item, None)
        batch.add(messages, key, len(messages) if isinstance(messages, list) else 1)
    return batch


def build(
    batch: Batch, rules: SetRules, router: ByKey | None = None
) -> tuple[list[OutgoingSet], Delivery]:
    delivery = Delivery(batch, router or ByKey(), rules)
    return delivery.sets, delivery


def payloads(data: bytes) -> list[bytes]:
    return [message.payload for message, _ in MessageSet(data)]


def test_messages_are_grouped_by_partition_in_order() -> None:
    sets, _ = build(batch_of(b"1", [b"3", b"4"], (b"5", 1), b"6"), rules())
    found = [(each.topic, each.target.partition, payloads(each.encoded)) for each in sets]
    assert found == [("a", 0, [b"1", b"3", b"4", b"6"]), ("a", 1, [b"5"])]
    assert [each.has_key for each in sets] == [False, True]


def test_each_item_gets_the_offset_of_its_own_first_message() -> None:
    sets, outcomes = build(batch_of([b"x" * 5, b""], b"y", b"z"), rules())
    sets[0].outcome = SendResult("a", 0, 100)
    assert list(outcomes) == [
        SendResult("a", 0, 100),
        SendResult("a", 0, 125),
        SendResult("a", 0, 136),
    ]


def test_messages_of_a_compressed_set_share_its_offset() -> None:
    sets, outcomes = build(batch_of(b"1", b"2"), rules(Codec.GZIP))
    sets[0].outcome = SendResult("a", 0, 100)
    assert list(outcomes) == [SendResult("a", 0, 100)] * 2


def test_what_can_not_be_routed_fails_alone() -> None:
    sets, outcomes = build(batch_of((b"1", "nowhere"), b"2"), rules())
    assert isinstance(outcomes[0], RoutingError)
    assert payloads(sets[0].encoded) == [b"2"]


def test_without_an_outcome_an_item_has_failed() -> None:
    _, outcomes = build(batch_of(b"1"), rules())
    assert isinstance(outcomes[0], Exception)


def test_an_item_of_several_sets_fails_with_any_of_them() -> None:
    sets, outcomes = build(batch_of([b"x" * 400] * 4), rules())
    assert len(sets) == 2
    failure = StorageUnavailableError("full")
    sets[0].outcome, sets[1].outcome = SendResult("a", 0, 0), failure
    assert outcomes[0] is failure
    sets[1].outcome = SendResult("a", 0, 820)
    assert outcomes[0] == SendResult("a", 0, 0)


def test_a_compressed_message_that_grew_too_large_goes_uncompressed() -> None:
    noise = random.Random(7).randbytes(1000)
    sets, _ = build(batch_of(noise), rules(Codec.SNAPPY, 1000, 1000))
    assert payloads(sets[0].encoded) == [noise]
    assert len(sets[0].encoded) == 1010


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.integers(0, 60).map(lambda n: b"p" * n), min_size=1, max_size=5),
        ),
        max_size=30,
    ),
    st.sampled_from(Codec),
)
def test_nothing_is_lost_reordered_or_too_large(calls, codec: Codec) -> None:
    batch = batch_of(*((messages, key) for key, messages in calls))
    sets, outcomes = build(batch, rules(codec, 100, 100))
    assert len(outcomes) == len(calls)
    for partition in range(3):
        expected = [each for key, messages in calls if key == partition for each in messages]
        arrived = b"".join(each.encoded for each in sets if each.target.partition == partition)
        assert payloads(arrived) == expected
    for each in sets:
        assert len(each.payloads) <= 1 or each.size_bytes <= 100
        for message, _ in MessageSet(each.encoded).iterate(deep=False):
            assert len(message.payload) <= 100


def test_a_handle_waits_for_its_batch_and_calls_back() -> None:
    batch = Batch("a", started=0.0)
    handle = SendHandle((batch, 0))
    heard: list[SendHandle] = []
    handle.add_done_callback(heard.append)
    assert not handle.done
    with pytest.raises(BrokerTimeoutError):
        handle.result(0)
    assert "pending" in repr(handle)
    thread = threading.Thread(target=batch.finish, args=([SendResult("a", 0, 7)],))
    thread.start()
    assert handle.result(10) == SendResult("a", 0, 7)
    thread.join(10)
    assert heard == [handle]
    handle.add_done_callback(heard.append)
    assert len(heard) == 2
    assert handle.exception() is None


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog) -> None:
    batch = Batch("a", started=0.0)
    heard: list[SendHandle] = []

    def fail(handle: SendHandle) -> None:
        raise ZeroDivisionError("oops")

    for callback in (fail, heard.append):
        SendHandle((batch, 0)).add_done_callback(callback)
    batch.finish([SendResult("a", 0, 7)])
    SendHandle((batch, 0)).add_done_callback(fail)
    assert len(heard) == 1
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError] * 2


def test_a_failed_handle_raises() -> None:
    batch = Batch("a", started=0.0)
    batch.finish([StorageUnavailableError("full")])
    handle = SendHandle((batch, 0))
    assert isinstance(handle.exception(), StorageUnavailableError)
    with pytest.raises(StorageUnavailableError):
        handle.result()


@given(st.lists(st.integers(0, 60).map(lambda n: b"p" * n), min_size=1, max_size=40))
def test_the_quick_way_gives_what_the_other_one_does(messages) -> None:
    router = ByKey(only=Target(0, 0))
    quick_sets, quick_outcomes = build(batch_of(*messages), rules(max_set=100), router)
    sets, outcomes = build(batch_of(*messages), rules(max_set=100))
    assert [each.encoded for each in quick_sets] == [each.encoded for each in sets]
    for each in (quick_sets, sets):
        offset = 0
        for one in each:
            one.outcome = SendResult("a", 0, offset)
            offset += len(one.encoded)
            assert one.size_bytes == len(one.encoded) <= 100
            assert (one.topic, one.target, one.has_key) == ("a", Target(0, 0), False)
    assert list(quick_outcomes) == list(outcomes)
    assert quick_outcomes.sent_count == outcomes.sent_count == len(messages)


@pytest.mark.parametrize("item", [[b"x", b"y"], (b"x", 0), (b"x", ())])
def test_the_quick_way_is_not_for_everything(item) -> None:
    router = ByKey(only=Target(9, 9))
    sets, _ = build(batch_of(b"1", item, b"2"), rules(), router)
    assert {each.target for each in sets} == {Target(0, 0)}
    assert router.asked == 0


def test_outcomes_are_those_of_the_indices() -> None:
    sets, delivery = build(batch_of(b"12345", b"", b"z"), rules(), ByKey(only=Target(0, 0)))
    sets[0].outcome = SendResult("a", 0, 100)
    batch = Batch("a", started=0.0)
    batch.finish(delivery)
    offsets = {0: 100, 1: 115, 2: 125}
    for indices in ([0, 1, 2], [2, 1, 0], [1], [1, 1, 2], []):
        assert [each.offset for each in batch.outcomes(indices)] == [offsets[n] for n in indices]
