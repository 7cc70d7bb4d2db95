"""Programs on pipes live through a broker's restart, and say so once."""

import json
import signal

from hermes_testkit import message, wait_until_visible
from server_process import free_port


def read_to(consumer, line):
    """Read until a line comes; one whose acknowledgement was lost in a kill comes twice."""
    while not (shown := consumer.stdout.readline()).endswith(b" %s\n" % line):
        assert b" back " in shown


def test_pipes_live_through_a_restart(start_broker, hermes_at):
    broker = start_broker(listen=f"tcp:{free_port()}:interface=127.0.0.1")
    hermes = hermes_at(broker.port)
    producer = hermes.start("produce", "-t", "t")
    producer.stdin.write(b"first\n")
    producer.stdin.flush()
    with broker.connect() as client:
        # A consumer that comes before the topic says that it waits for it.
        wait_until_visible(client, "t", 0, len(message(b"first")))
    consumer = hermes.start("consume", "-t", "t", "-f", r"%o %s\n")
    assert consumer.stdout.readline() == b"0 first\n"
    for number in range(2):
        broker.kill() if number else broker.stop()
        assert b"retrying" in consumer.stderr.readline()
        producer.stdin.write(b"while it is away %d\n" % number)
        producer.stdin.flush()
        assert b"retrying" in producer.stderr.readline()
        broker.start()
        read_to(consumer, b"while it is away %d" % number)
        # Sent once the line before is acknowledged: a kill before that is no new failure.
        producer.stdin.write(b"back %d\n" % number)
        producer.stdin.flush()
        read_to(consumer, b"back %d" % number)
    producer.stdin.write(b"last\n")
    producer.stdin.close()
    assert producer.wait(60) == 0
    read_to(consumer, b"last")
    consumer.kill()
    whole = hermes("consume", "-t", "t", "-e", "-o", "beginning").stdout.splitlines()
    away = [b"while it is away 0", b"back 0", b"while it is away 1", b"back 1"]
    assert list(dict.fromkeys(whole)) == [b"first", *away, b"last"]
    assert (producer.stderr.read(), consumer.stderr.read()) == (b"", b"")


def test_a_bounded_time_ends_a_producer_with_what_is_stored(start_broker, hermes_at):
    broker = start_broker()
    producer = hermes_at(broker.port).start("produce", "-t", "t", "--delivery-timeout", "0.3")
    producer.stdin.write(b"first\n")
    producer.stdin.flush()
    with broker.connect() as client:
        wait_until_visible(client, "t", 0, len(message(b"first")))
    broker.stop()
    producer.stdin.write(b"second\n")
    producer.stdin.close()
    assert producer.wait(60) == 1
    assert b"lines 1 to 1 are stored" in producer.stderr.read()


def test_reading_to_the_end_is_not_for_waiting(start_broker, hermes_at):
    broker = start_broker()
    hermes = hermes_at(broker.port)
    hermes("produce", "-t", "t", stdin=b"x\n")
    broker.stop()
    ended = hermes("consume", "-t", "t", "-e", code=1)
    assert b"is the broker running there?" in ended.stderr


def test_a_member_that_is_told_to_end_leaves_its_group_at_once(start_broker, hermes_at):
    broker = start_broker(coordination="embedded", coordination_listen="tcp:0:interface=127.0.0.1")
    hermes = hermes_at(broker.port)
    hermes("produce", "-t", "t", stdin=b"x\ny\n")
    member = hermes.start("consume", "-g", "g", "-t", "t")
    assert [member.stdout.readline() for _ in range(2)] == [b"x\n", b"y\n"]
    member.terminate()
    assert member.wait(60) == 128 + signal.SIGTERM
    left = json.loads(hermes("groups", "describe", "g", "--json").stdout)
    assert left["members"] == []
    # The signal may find the second message still in its hands, and then it comes again.
    one = len(message(b"x"))
    assert [each["offset"] for each in left["partitions"]] in ([one], [2 * one])
