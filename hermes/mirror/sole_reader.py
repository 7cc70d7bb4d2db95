"""Reads a source without coordination: one process reads all, and only the target knows how far.

Brokers say what topics they have; those of Kafka 0.7 don't, so that they need their ZooKeeper.
"""

from collections.abc import Sequence
from typing import Final

from hermes.client.groups.streams import Claim
from hermes.client.simple_consumer import SimpleConsumer
from hermes.coordination.layout import BrokerPartition
from hermes.errors import ConfigError, HermesError
from hermes.mirror.whole_source import Reading, WholeSource
from hermes.protocol import MetadataRequest

_LOOK_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0

_Address = tuple[str, int]


class SoleReader(WholeSource[tuple[str, BrokerPartition]]):
    """Reads the brokers that are given.

    Args:
        brokers: all of the source.

    Attributes:
        addresses: where the brokers are that have answered, by id.
    """

    def __init__(self, source: str, brokers: Sequence[_Address], reading: Reading) -> None:
        super().__init__(source, reading)
        self.addresses: dict[int, _Address] = {}
        self._brokers = brokers
        self._seen: dict[_Address, int] = {}  # by address who answered there at the last look

    def partitions(self, topic: str) -> set[BrokerPartition]:
        return {partition for name, partition in list(self._claims) if name == topic}

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            for address in self._brokers:
                what = "{}, {}:{}".format(self._what, *address)
                try:
                    self._look(address)
                    self._problems.end(what)
                except HermesError as error:
                    self._seen.pop(address, None)
                    self._problems.begin(what, str(error))
            self._stopped.wait(_LOOK_SECONDS)

    def _look(self, address: _Address) -> None:
        settings = self._config.security.settings()
        with SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS, **settings) as consumer:
            if not consumer.supports(MetadataRequest.TYPE):
                raise ConfigError(
                    "sources",
                    f"{consumer.address} is a Kafka 0.7, which tells neither its topics nor its "
                    "partitions: give zookeeper instead of brokers",
                )
            metadata = consumer.metadata()
        broker_id = metadata.broker_id
        found = {
            (each.topic, BrokerPartition(broker_id, number))
            for each in metadata.topics
            if self._topics.allows(each.topic)
            for number in range(each.partition_count)
        }
        self._seen[address] = broker_id
        former = self.addresses.setdefault(broker_id, address)
        if self._seen.get(former) != broker_id:  # it has moved
            self.addresses[broker_id] = address
            if broker_id in self._fetchers:
                self._stop_fetcher(broker_id)
        new = {place: self._claim(*place) for place in sorted(found - self._claims.keys())}
        gone = [
            claim
            for place, claim in self._claims.items()
            if place[1].broker_id == broker_id and place not in found
        ]
        self._claims.update(new)
        for claim in gone:  # the topic was deleted
            del self._claims[claim.topic, claim.partition]
        self._stream.revoke(gone, lost=True)
        self._stream.replace_claims(list(new.values()), gone)
        if broker_id not in self._fetchers:
            self._fetch_from(broker_id, self.addresses[broker_id])

    def _has(self, claim: Claim, broker_id: int) -> bool:
        return claim.partition.broker_id == broker_id
