"""A producer with the callback handler `audit`, on a real broker."""

import pytest
from mirrored_pair import eventually

from hermes.audit.events import Alive, CountsEvent, decode_event
from hermes.client import EARLIEST, FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.errors import MessageTooLargeError
from hermes.protocol.stamps import read_stamp
from hermes.testing import running_broker


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


def payloads(broker, topic):
    with SimpleConsumer(broker.host, broker.port) as consumer:
        (start,) = consumer.get_offsets_before(topic, 0, EARLIEST)
        fetched = consumer.fetch(FetchRequest(topic, 0, start, 1 << 24))
        return [message.payload for message, _ in fetched]


def audited(broker, **settings):
    return ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        callback_handler="audit",
        **settings,
    )


def reports(broker, process):
    events = [decode_event(each) for each in payloads(broker, "hermes-audit")]
    return [each for each in events if each.process == process]


def test_messages_are_stamped_counted_and_reported(broker):
    with Producer(audited(broker, encoder="json")) as producer:
        producer.send("clicks", {"user": 7})
        producer.send("clicks", [{"user": 8}, {"user": 9}], key="b")
    stored = [read_stamp(each) for each in payloads(broker, "clicks")]
    assert [value for _, value in stored] == [b'{"user":7}', b'{"user":8}', b'{"user":9}']
    assert [stamp.number for stamp, _ in stored] == [0, 1, 2]
    events = reports(broker, stored[0][0].process)
    assert [each.sequence for each in events] == list(range(len(events)))
    counts = [each.body for each in events if isinstance(each.body, CountsEvent)]
    assert sum(count for each in counts for count, _ in each.windows.values()) == 3
    assert isinstance(events[-1].body, Alive)
    assert events[-1].body.closed


def test_without_acknowledgements_nothing_is_certain(broker):
    with Producer(audited(broker, acks="none")) as producer:
        producer.send("unacknowledged", b"a")  # which is answered: that tells the topic's format
        producer.flush()
        producer.send("unacknowledged", b"b")
        producer.flush()

    def counted(process):
        return [
            each.body for each in reports(broker, process) if isinstance(each.body, CountsEvent)
        ]

    # What nobody acknowledges may still be on its way, the counts as well.
    (stamp, _), _ = map(
        read_stamp,
        eventually(lambda: len(found := payloads(broker, "unacknowledged")) == 2 and found),
    )
    found = eventually(lambda: counted(stamp.process))
    known = [count for each in found for count, _ in each.windows.values()]
    unknown = [count for each in found for count, _ in each.unknown.values()]
    assert (known, unknown) == ([1], [1])


def test_a_payload_that_its_stamp_makes_too_large_is_refused(broker):
    with Producer(audited(broker, max_message_bytes=100)) as producer:
        handle = producer.send("large", b"x" * 90)
        assert isinstance(handle.exception(30), MessageTooLargeError)
        assert producer.send("large", b"x" * 20).result(30).offset == 0


def test_an_application_still_learns_of_failures(broker):
    with Producer(audited(broker, max_message_bytes=100)) as producer:
        producer.send("failing", b"x" * 90)
        with pytest.raises(Exception, match="1 message"):
            producer.flush(30)
