"""Brokers as processes that keep copies of each other's partitions, and what may befall them.

Clients reach each broker directly. With `is_cuttable` the brokers reach each other, and
coordination, by ways that can be cut: no side hears of that, as with a network's cable.
"""

import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from byte_cutter import ByteCutter
from confluent_kafka.admin import AdminClient, NewTopic
from hermes_testkit import BrokerProcess
from replicated_disks import TracedBroker
from server_process import DEADLINE_SECONDS, free_port

from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import ClientError

__all__ = ["Cut", "PartitionCopies", "ReplicatedCluster"]

#: What doesn't get through: what its followers ask it, what it answers them, or neither way
#: anything between it and coordination.
Cut = Literal["to it", "from it", "from coordination"]


class PartitionCopies(NamedTuple):
    """What Metadata says of a partition; the leader is -1 for nobody."""

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


class _Way:
    """How a broker's followers reach it; gone while it doesn't run, so that they are refused."""

    def __init__(self, broker_port: int) -> None:
        self.port = free_port()
        self.broker_port = broker_port
        self.open()

    def open(self) -> None:
        self.cutter = ByteCutter(("127.0.0.1", self.broker_port), self.port)

    def close(self) -> None:
        self.cutter.stop()


class ReplicatedCluster:
    """Three brokers unless told otherwise, whose ids begin with 1.

    Args:
        directory: for all that they keep.
        coordination: `host:port/chroot` of a tree of their own.
        count: how many there are.
        is_cuttable: whether the ways between them can be cut.
        broker: what each of them is.
        settings: further ones of broker.yaml, of each.

    Attributes:
        brokers: by their ids.
        addresses: of each, for Kafka's clients.
        bootstrap: all of them, for Kafka's clients.
        coordination: their tree.
    """

    def __init__(
        self,
        directory: Path,
        coordination: str,
        count: int = 3,
        is_cuttable: bool = False,
        broker: Callable[..., BrokerProcess] = BrokerProcess,
        **settings: Any,
    ) -> None:
        self.coordination = coordination
        self._settings = {"zookeeper_session_timeout": "2s", **settings}
        self._ports = {number: free_port() for number in range(1, count + 1)}
        self.addresses = {each: f"127.0.0.1:{port}" for each, port in self._ports.items()}
        self.bootstrap = ",".join(self.addresses.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._between: dict[int, _Way] = {}
        self._to_coordination: dict[int, ByteCutter] = {}
        self._away: set[int] = set()  # who can't say how things are
        self.brokers: dict[int, BrokerProcess] = {}
        try:
            for number in self._ports:
                own = self._own_settings(number, directory, is_cuttable)
                place = directory / f"broker-{number}"
                self.brokers[number] = broker(place, own, wait=False)
            for each in self.brokers.values():
                each.wait_for_line("is ready: Hermes")
            self.wait_until(self._is_whole, "the brokers don't find each other")
        except BaseException:
            self.close()
            raise

    def _own_settings(self, number: int, directory: Path, is_cuttable: bool) -> dict[str, Any]:
        listener = f"tcp:{self._ports[number]}:interface=127.0.0.1"
        own = {
            "broker_id": number,
            "log_dir": str(directory / f"data-{number}"),
            "coordination": "zookeeper",
            "zookeeper_connect": self.coordination,
            "kafka_listen": listener,
            **self._settings,
        }
        if not is_cuttable:
            return own
        address, _, chroot = self.coordination.partition("/")
        host, _, port = address.partition(":")
        cutter = self._to_coordination[number] = ByteCutter((host, int(port)))
        way = self._between[number] = _Way(free_port())
        between = {
            "name": "between",
            "endpoint": f"tcp:{way.broker_port}:interface=127.0.0.1",
            "advertised": f"127.0.0.1:{way.port}",
        }
        return {
            **own,
            "zookeeper_connect": f"127.0.0.1:{cutter.port}/{chroot}",
            "kafka_listen": [{"name": "clients", "endpoint": listener}, between],
            "replication_listener": "between",
        }

    def close(self) -> None:
        """Stop all that runs, all at once: nobody is left to take over."""
        for cutter in self._to_coordination.values():
            cutter.release()
        for way in self._between.values():
            way.cutter.release()
        for each in self.brokers.values():
            if each.process.poll() is None:
                self._resume(each)
                each.process.terminate()
        for each in self.brokers.values():
            each.wait()
        for way in self._between.values():
            way.close()
        for cutter in self._to_coordination.values():
            cutter.stop()

    # -- what befalls a broker --------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """End a broker without any warning."""
        self._away.add(number)
        self.brokers[number].kill()
        if number in self._between:
            self._between[number].close()

    def lose_power(self, numbers: Iterable[int], mode: str, chance: Random) -> None:
        """Take traced brokers their power at once, and what may go with it; then start them."""
        numbers = tuple(numbers)
        for each in numbers:
            self.kill(each)
        for each in numbers:
            broker = self.brokers[each]
            assert isinstance(broker, TracedBroker)
            broker.lose(mode, chance)
        self.start_together(numbers)

    def stop(self, number: int) -> None:
        """Stop a broker in good order."""
        self._away.add(number)
        assert self.brokers[number].stop() == 0, self.said()
        if number in self._between:
            self._between[number].close()

    def start(self, number: int) -> None:
        """Start a broker again, with what it has kept."""
        self.launch(number)
        self.wait_until_ready(number)

    def start_together(self, numbers: Collection[int]) -> None:
        """Start brokers again, none of which waits for another."""
        for each in numbers:
            self.launch(each)
        for each in numbers:
            self.wait_until_ready(each)

    def wait_until_ready(self, number: int) -> None:
        """Wait until a broker that was launched serves."""
        self.brokers[number].wait_for_line("is ready: Hermes")
        self._away.discard(number)

    def launch(self, number: int) -> None:
        """Start a broker again, and wait for nothing."""
        if number in self._between:
            self._between[number].open()
        self.brokers[number].start(wait=False)

    def wipe(self, number: int) -> None:
        """Take a broker that doesn't run all that it has kept."""
        shutil.rmtree(self.brokers[number].log_dir)

    def pause(self, number: int) -> None:
        """Let a broker do nothing, until `resume`."""
        self._away.add(number)
        self.brokers[number].process.send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Let it go on."""
        self._resume(self.brokers[number])
        self._away.discard(number)

    @staticmethod
    def _resume(broker: BrokerProcess) -> None:
        broker.process.send_signal(signal.SIGCONT)

    def cut(self, number: int, *ways: Cut) -> None:
        """Cut a broker off, until `heal`."""
        for each in ways:
            if each == "from coordination":
                self._away.add(number)
                self._to_coordination[number].hold("client", "broker")
            else:
                self._between[number].cutter.hold("client" if each == "to it" else "broker")

    def heal(self, number: int) -> None:
        """Mend what was cut; what was on its way arrives."""
        self._to_coordination[number].release()
        self._between[number].cutter.release()
        self._away.discard(number)

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        copies: int = 3,
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Create a topic, and wait until each of its copies is in sync."""
        topic = NewTopic(name, partitions, copies, config=dict(config))
        self._admin.create_topics([topic])[name].result(DEADLINE_SECONDS)
        self.wait_until_in_sync(name, partitions, copies)

    def live(self) -> set[int]:
        """The brokers that are there, as one of them says that knows."""
        return _live_in(self._metadata([]))

    def _is_whole(self) -> bool:
        """Whether every broker knows all: a client may ask any of them to create a topic."""
        every = set(self._ports)
        return all(_live_in(self._metadata_of(number, [])) == every for number in every)

    def copies(self, topic: str) -> dict[int, PartitionCopies]:
        """What is said of a topic's partitions now, by number.

        By who leads each: whoever has just woken, or started, knows of how it was before.

        Raises:
            ClientError: nobody knows it now.
        """
        said: dict[int, dict[int, Any]] = {}
        for broker_id in self._ports.keys() - self._away:
            with suppress(ClientError):
                (found,) = self._metadata_of(broker_id, [{"name": topic}]).topics
                for each in found.partitions:
                    said.setdefault(each.partition_index, {})[broker_id] = each
        if not said:
            raise ClientError(f"nobody knows {topic} now")
        return {number: _latest(said[number]) for number in sorted(said)}

    def _metadata(self, topics: list[dict[str, str]]) -> Any:
        """What a broker says that runs and isn't cut off.

        Raises:
            ClientError: it doesn't answer now.
        """
        return self._metadata_of(min(self._ports.keys() - self._away), topics)

    def _metadata_of(self, number: int, topics: list[dict[str, str]]) -> Any:
        with KafkaAsker("127.0.0.1", self._ports[number]) as asker:
            return asker.ask("Metadata", 8, topics=topics)

    def leader(self, topic: str, number: int = 0, but: int = -1) -> int:
        """Who leads a partition; waits until somebody does, and somebody else than `but`."""
        found = -1

        def is_led() -> bool:
            nonlocal found
            known = self.copies(topic).get(number)
            found = -1 if known is None else known.leader
            return found not in (-1, but)

        self.wait_until(is_led, f"nobody leads {topic}-{number}")
        return found

    def wait_until_in_sync(self, topic: str, partitions: int = 1, copies: int = 3) -> None:
        """Wait until so many copies of each partition are in sync, and it is led."""

        def are_in_sync() -> bool:
            known = self.copies(topic).values()
            return len(known) == partitions and all(
                len(each.in_sync) == copies and each.leader != -1 for each in known
            )

        try:
            self.wait_until(are_in_sync, f"{topic} isn't in sync")
        except AssertionError as error:
            with suppress(ClientError):
                error.add_note(f"{self.copies(topic)}")
            raise

    def wait_until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Wait for what nothing announces."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not _holds(is_so):
            assert time.monotonic() < deadline, f"{otherwise}:\n{self.said()}"
            time.sleep(0.02)  # between two looks

    def said(self) -> str:
        """The last lines of each broker."""
        return "".join(line for each in self.brokers.values() for line in each.lines[-40:])


def _latest(said: dict[int, Any]) -> PartitionCopies:
    """What counts of what brokers say of a partition: of the latest epoch, its leader's word."""
    latest = max(said.values(), key=lambda each: each.leader_epoch)
    own = said.get(latest.leader_id, latest)
    found = own if own.leader_epoch == latest.leader_epoch else latest
    return PartitionCopies(
        found.leader_id, frozenset(found.replica_nodes), frozenset(found.isr_nodes)
    )


def _holds(is_so: Callable[[], bool]) -> bool:
    with suppress(ClientError):
        return is_so()
    return False


def _live_in(metadata: Any) -> set[int]:
    return {each.node_id for each in metadata.brokers}
