"""Groups of real consumers whose members, and whose broker, are killed while they read."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from kafka_4 import java_command
from server_process import free_port

from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import ClientError

TOPIC, PARTITIONS = "clicks", 6
_MEMBER = Path(__file__).with_name("kafka_group_member.py")
_DEADLINE_SECONDS = 120.0

#: Half a session is what a broker needs to be there again while the machine is busy.
_SESSION_MS = {
    "confluent-kafka": "2000",
    "kafka-python": "3000",
    "aiokafka": "3000",
    "java": "4000",
}


class Member:
    """One process of `kafka_group_member`, or of Java's; its lines are read by a thread."""

    def __init__(
        self, client: str, servers: str, group: str, assignor: str, instance_id: str
    ) -> None:
        given = [servers, group, TOPIC, assignor, instance_id, _SESSION_MS[client]]
        kind = [sys.executable, str(_MEMBER), client]
        if client == "java":
            # In a consumer group its thread spins while no coordinator is there (kafka-clients
            # 4.3.1): the broker that everybody waits for needs the processors more.
            kind = ["nice", "-n", "10", *java_command("GroupMember.java")]
        command = [*kind, *given]
        self.seen: list[tuple[int, int, str]] = []
        self.done: list[tuple[int, int]] = []
        self.instance_id = instance_id
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, *rest = line.split()
            if kind == "seen" and len(rest) == 3:
                self.seen.append((int(rest[0]), int(rest[1]), rest[2]))
            elif kind == "done" and len(rest) == 2:
                self.done.append((int(rest[0]), int(rest[1])))
        self.process.stdout.close()

    def end(self, *, kill: bool) -> None:
        """End it, by SIGKILL or in good order, and read all that it wrote."""
        if self.process.poll() is None:
            (self.process.kill if kill else self.process.terminate)()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:  # librdkafka waits for a broker that is away
            self.process.kill()
            self.process.wait()
        self._reader.join()


def _holds(condition: Callable[[], bool]) -> bool:
    with suppress(ClientError):
        return condition()
    return False


def _check_delivered(error: object, message: object) -> None:
    assert error is None, error


class KilledGroup:
    """Brokers, a group, and what is killed of them.

    Args:
        start_broker: the fixture.
        assignor: of all members; `consumer` for a consumer group (KIP-848).
        static: how many of the four have an instance id.
        directory: for the brokers' data.
        count: how many brokers there are.
        client: of all members: confluent-kafka, kafka-python, aiokafka or java.
        settings: further settings of all of them.
    """

    def __init__(
        self,
        start_broker: Callable[..., BrokerProcess],
        assignor: str,
        static: int,
        directory: Path,
        count: int = 1,
        client: str = "confluent-kafka",
        **settings: Any,
    ) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.servers = ",".join(f"127.0.0.1:{each}" for each in self.ports)
        self.brokers = [
            start_broker(
                broker_id=number,
                log_dir=str(directory / f"data-{number}"),
                kafka_listen=f"tcp:{port}:interface=127.0.0.1",
                group_initial_rebalance_delay="0s",
                group_min_session_timeout="500ms",
                group_consumer_session_timeout="1s",
                group_consumer_heartbeat_interval="100ms",
                **settings,
            )
            for number, port in enumerate(self.ports)
        ]
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        end = time.monotonic() + _DEADLINE_SECONDS
        while len(admin.list_topics(timeout=30).brokers) < count:
            assert time.monotonic() < end, "the brokers don't find each other"
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(_DEADLINE_SECONDS)
        self.client, self.assignor = client, assignor
        self.committed: dict[int, int] = {}
        self.produced: list[str] = []
        self.ended: list[Member] = []
        ids = [f"static{each}" if each < static else "-" for each in range(4)]
        self.members = [self._member(each) for each in ids]

    def _member(self, instance_id: str) -> Member:
        return Member(self.client, self.servers, "g", self.assignor, instance_id)

    def produce(self, count: int) -> None:
        """Produce messages, and wait until all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for _ in range(count):
            value = f"m{len(self.produced)}"
            self.produced.append(value)
            partition = len(self.produced) % PARTITIONS
            producer.produce(TOPIC, value, partition=partition, on_delivery=_check_delivered)
        assert producer.flush(_DEADLINE_SECONDS) == 0

    def kill_member(self, place: int, *, kill: bool = True, replace: bool = True) -> None:
        """End a member, and let another one come in its place."""
        member = self.members[place]
        member.end(kill=kill)
        self.ended.append(member)
        if replace:
            self.members[place] = self._member(member.instance_id)
        else:
            del self.members[place]

    def kill_broker(self, number: int = 0, *, pause: Callable[[], None] = lambda: None) -> None:
        """Kill a broker, and start it again after a pause."""
        self.brokers[number].kill()
        pause()
        self.brokers[number].start()

    def look(self) -> dict[int, int]:
        """Read what is committed; it never goes back, nor behind what a member was told."""
        told: dict[int, int] = {}
        for member in [*self.ended, *self.members]:
            for partition, offset in list(member.done):
                told[partition] = max(told.get(partition, 0), offset)
        found = self._fetched()
        for partition, offset in self.committed.items():
            now = found.get(partition, -1)
            assert now >= offset, f"partition {partition} went back from {offset} to {now}: {told}"
        for partition, offset in told.items():
            now = found.get(partition, -1)
            assert now >= offset, f"a commit of {offset} in {partition} is lost: {now}"
        self.committed = found
        return found

    def _fetched(self) -> dict[int, int]:
        """Ask all brokers in turn, since one may not know yet that the group is another's.

        Raises:
            ClientError: none of them says that it coordinates the group.
        """
        for port in self.ports:
            with suppress(ClientError), KafkaAsker("127.0.0.1", port) as asker:
                groups = [{"group_id": "g", "topics": None}]
                (group,) = asker.ask("OffsetFetch", 8, groups=groups).groups
                if not group.error_code:
                    return {
                        place.partition_index: place.committed_offset
                        for topic in group.topics
                        for place in topic.partitions
                    }
        raise ClientError("no broker coordinates the group now")

    def home(self) -> int:
        """The place of the broker that coordinates the group; waits until one does."""
        found: list[int] = []

        def is_found() -> bool:
            with KafkaAsker("127.0.0.1", self.ports[0]) as asker:
                (home,) = asker.ask("FindCoordinator", 4, coordinator_keys=["g"]).coordinators
            found[:] = [home.port]
            return home.port in self.ports

        self.wait_until(is_found, "nobody coordinates it")
        return self.ports.index(found[0])

    def is_led(self) -> bool:
        """Whether some broker coordinates the group and knows what it has committed."""
        try:
            self._fetched()
        except ClientError:
            return False
        return True

    def seen(self) -> set[str]:
        """What anybody has got so far."""
        return {value for each in [*self.ended, *self.members] for _, _, value in list(each.seen)}

    @property
    def seen_again(self) -> int:
        """How many messages came once more than they had to."""
        return sum(len(each.seen) for each in [*self.ended, *self.members]) - len(self.seen())

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, while looking at what is committed; no answer is no yes."""
        end = time.monotonic() + _DEADLINE_SECONDS
        while not _holds(condition):
            assert time.monotonic() < end, (
                what
                + ":\n"
                + "".join(line for broker in self.brokers for line in broker.lines[-40:])
            )
            with suppress(ClientError):
                self.look()
            time.sleep(0.05)

    def wait_for_progress(self, random: Random) -> None:
        """Wait until some more messages have arrived, or all."""
        target = min(len(self.seen()) + random.randrange(1, 60), len(self.produced))
        self.wait_until(lambda: len(self.seen()) >= target, "no progress")

    def finish(self) -> None:
        """Wait until everything has arrived and is committed; then end all.

        Also what now comes to each partition, so each has somebody who reads it.
        """
        self.produce(PARTITIONS)
        wanted = set(self.produced)
        self.wait_until(lambda: self.seen() >= wanted, "some messages never came")
        self.wait_until(
            lambda: sum(self.look().values()) >= len(self.produced), "not all is committed"
        )
        for each in self.members:
            each.process.terminate()
        self.close()
        self.wait_until(lambda: bool(self.look()), "nobody knows what is committed")
        assert sum(self.committed.values()) == len(self.produced)

    def close(self) -> None:
        """Leave no process behind."""
        for each in self.members:
            each.end(kill=False)
