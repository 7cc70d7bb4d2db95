"""What every callback handler must do, run on each built-in one."""

import pytest
from zope.interface.verify import verifyClass, verifyObject

from hermes.audit.producers import AuditHandler
from hermes.client import ProducerData, SendResult
from hermes.errors import BrokerUnavailableError
from hermes.interfaces import ICallbackHandler
from hermes.plugins.callbacks.failures import LogFailures

ITEM = ProducerData("clicks", b"payload")


@pytest.fixture(params=[AuditHandler, LogFailures])
def factory(request):
    return request.param


def test_provides_the_interface(factory) -> None:
    assert verifyClass(ICallbackHandler, factory)
    assert verifyObject(ICallbackHandler, factory())


def test_what_it_gives_back_can_be_sent(factory) -> None:
    handler = factory()
    item = handler.before_enqueue(ITEM)
    assert item is None or isinstance(item, ProducerData)
    assert all(isinstance(each, ProducerData) for each in handler.after_dequeue([ITEM, ITEM]))


def test_every_hook_may_be_called(factory) -> None:
    handler = factory()
    handler.after_enqueue(ITEM, True)
    handler.after_enqueue(ITEM, False)
    handler.before_send([ITEM])
    handler.after_send([ITEM], [SendResult("clicks", 0, None)])
    handler.on_failure([ITEM], BrokerUnavailableError("gone"))
    handler.on_close()
