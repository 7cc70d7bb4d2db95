"""Clients in a forked process: they refuse, end at once, and leave the parent's alone."""

import subprocess
import sys

import pytest

# Python 3.12 warns of every fork of a process with threads; that is what is tried here.
_PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from hermes import *
from hermes import ClientError
from hermes.client import SyncProducer
broker = "0:127.0.0.1:{port}"

def in_child(work):
    '''The child's exit status, as an ordinary program ends: by sys.exit.'''
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        work()
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def says_so(call, *arguments):
    try:
        call(*arguments)
    except ClientError as error:
        assert "forked from" in str(error), error
    else:
        raise SystemExit("it was done")
"""

_SYNC = """
with Producer(ProducerConfig(broker_list=broker, acks="written")) as producer:
    producer.send("clicks", b"1")
    def work():
        says_so(producer.send, "clicks", b"child")
        says_so(producer.flush)
        producer.close()
    assert in_child(work) == 7
    producer.send("clicks", b"2")
"""

_ASYNC = """
producer = Producer(ProducerConfig(broker_list=broker, producer_type="async", queue_time="1h"))
handle = producer.send("clicks", b"1")
def work():
    says_so(producer.send, "clicks", b"child")
    says_so(handle.result)
    producer.metrics()
assert in_child(work) == 7
producer.send("clicks", b"2")
producer.close()
"""

_CONNECTIONS = """
with SimpleConsumer("127.0.0.1", {port}) as consumer, SyncProducer("127.0.0.1", {port}) as sender:
    for payload in (b"1", b"2"):
        sender.send("clicks", 0, encode_message_set([payload]))
        sender.barrier()
        consumer.fetch(FetchRequest("clicks", 0, 0, 100))
        def work():
            says_so(consumer.fetch, FetchRequest("clicks", 0, 0, 100))
            says_so(sender.send, "clicks", 0, encode_message_set([b"child"]))
            consumer.close()
            sender.close()
            with SimpleConsumer("127.0.0.1", {port}) as another:
                assert len(list(another.fetch(FetchRequest("clicks", 0, 0, 100)))) > 0
        assert in_child(work) == 7
"""

_ASYNCIO = """
import asyncio
from hermes import aio

async def main():
    config = ProducerConfig(broker_list=broker)
    consumer = aio.SimpleConsumer("127.0.0.1", {port})
    async with aio.Producer(config) as producer, consumer:
        for payload in (b"1", b"2"):
            await producer.send("clicks", payload)
            await consumer.fetch(FetchRequest("clicks", 0, 0, 100))
            def work():
                says_so(consumer.fetch(FetchRequest("clicks", 0, 0, 100)).send, None)
                says_so(producer.enqueue("clicks", b"child").send, None)
                os._exit(7)  # the event loop is the parent's, too
            assert in_child(work) == 7

asyncio.run(main())
"""


@pytest.mark.parametrize("what", [_SYNC, _ASYNC, _CONNECTIONS, _ASYNCIO])
def test_a_child_is_told_and_the_parent_goes_on(memory_broker, what: str) -> None:
    broker = memory_broker()
    program = (_PROGRAM + what).replace("{port}", str(broker.port))
    if "encode_message_set" in what:
        program = "from hermes.protocol import encode_message_set\n" + program
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert broker.payloads("clicks") == [b"1", b"2"]
