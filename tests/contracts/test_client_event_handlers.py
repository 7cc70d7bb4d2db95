"""What every event handler must do. None is built in; this one stands for those of others."""

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyClass, verifyObject

from hermes.client import ProducerData, SendResult
from hermes.interfaces import IEventHandler


@implementer(IEventHandler)
class Discard:
    """Discards what has no key, sends the rest in the built-in way."""

    def handle(self, batch, default):
        kept = iter(default([item for item in batch if item.key is not None]))
        return [
            SendResult(item.topic, -1, None) if item.key is None else next(kept) for item in batch
        ]

    def close(self):
        pass


@pytest.fixture(params=[Discard])
def factory(request):
    return request.param


def sent(batch):
    return [SendResult(item.topic, 0, 7) for item in batch]


def test_provides_the_interface(factory) -> None:
    assert verifyClass(IEventHandler, factory)
    assert verifyObject(IEventHandler, factory())


def test_every_item_gets_a_result_in_order(factory) -> None:
    batch = [ProducerData(topic, b"x", key) for topic, key in (("a", 1), ("b", None), ("c", 2))]
    results = list(factory().handle(batch, sent))
    assert [each.topic for each in results] == ["a", "b", "c"]


def test_failures_of_the_default_are_passed_on(factory) -> None:
    failure = ValueError("oops")
    (result,) = factory().handle([ProducerData("a", b"x", 1)], lambda batch: [failure])
    assert result is failure


def test_close_follows_the_last_batch(factory) -> None:
    handler = factory()
    handler.handle([ProducerData("a", b"x")], sent)
    handler.close()
