"""A process that is stopped in the middle of a run, for longer than its lease lasts."""

import os
import signal
import subprocess
import sys
import time

_PROGRAM = """
import sys
from hermes.client.groups.streams import Claim
from hermes.client.groups.streams import MessageStream
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import ConsumerTimeoutError
from hermes.protocol import MessageSet, encode_message_set

lease = Lease(1)
lease.until = lease.clock() + 3600
stream = MessageStream("s", None, 1.0, lambda: None)
claim = Claim("t", BrokerPartition(0, 0), "c-0", stream.lock, lease)
claim.start_at(0)
stream.replace_claims(add=[claim])
messages = encode_message_set([b"x"] * 10_000)
late = taken = 0
while True:
    claim.add(MessageSet(messages, claim.fetch_offset), claim.epoch)
    for _ in range(10_000):
        asked = lease.clock()
        try:
            next(stream)
        except ConsumerTimeoutError:
            print(taken, late)
            sys.exit()
        late += asked >= lease.until
        if not taken:
            lease.until = lease.clock() + 1
            print(lease.until, flush=True)
        taken += 1
"""


def test_nothing_is_delivered_after_a_stop_that_outlasts_the_lease() -> None:
    reader = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert reader.stdout is not None
        until = float(reader.stdout.readline())
        os.kill(reader.pid, signal.SIGSTOP)
        while time.clock_gettime(time.CLOCK_BOOTTIME) < until:
            time.sleep(0.05)
        os.kill(reader.pid, signal.SIGCONT)
        told, _ = reader.communicate(timeout=60)
        taken, late = map(int, told.split())
        assert (taken > 0, late) == (True, 0)
    finally:
        reader.kill()
        reader.wait()
        reader.stdout.close()
