"""A member of a group that forks: the child refuses and ends, the parent reads on."""

import subprocess
import sys

from hermes.client import Producer, ProducerConfig
from hermes.testing import running_broker

_PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from hermes import ClientError
from hermes.client.groups import Consumer, ConsumerConfig

connector = Consumer.create(ConsumerConfig(group="g", zookeeper_connect={connect!r}))
(stream,) = connector.create_message_streams({{"clicks": 1}})["clicks"]
got = [next(stream).message for _ in range(10)]
pid = os.fork()
if pid == 0:
    for call in (lambda: next(stream), connector.commit_offsets):
        try:
            call()
        except ClientError as error:
            assert "forked from" in str(error), error
        else:
            raise SystemExit("it was done")
    connector.shutdown()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
got += [next(stream).message for _ in range(10)]
connector.shutdown()
assert got == [b"%d" % number for number in range(20)], got
"""


def test_a_child_of_a_member_ends_and_the_parent_reads_on(connect: str) -> None:
    settings = {"coordination": "zookeeper", "zookeeper_connect": connect}
    with running_broker(None, settings) as broker:
        with Producer(ProducerConfig(broker_list=broker.broker_list)) as producer:
            producer.send("clicks", [b"%d" % number for number in range(20)])
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(connect=connect)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
