"""From the addresses of some brokers to what clients need of their cluster, by asking them.

An address that an application gives is a way in: the brokers behind it say which brokers there are,
under which ids, and where groups are coordinated. A broker that was asked stays at the address by
which it answered, whatever it says of itself; the others are where it says they are.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hermes.client import conversations
from hermes.client.conversations import BrokerVersions, Conversation
from hermes.client.simple_consumer import SimpleConsumer
from hermes.client.sync_producer import SyncProducer
from hermes.config.addresses import BrokerAddress
from hermes.errors import (
    SILENT,
    HermesError,
    NoCoordinationError,
    RoutingError,
)
from hermes.protocol import ClusterBrokersRequest, MetadataRequest

_log = logging.getLogger(__name__)


def coordination_of(addresses: Iterable[BrokerAddress], **settings: Any) -> str:
    """Ask brokers for the `zookeeper_connect` of their groups, until one answers.

    Args:
        **settings: of `SimpleConsumer`.

    Raises:
        NoCoordinationError: nowhere; the text says what to do.
        HermesError: none of them answers.
    """
    failure: HermesError | None = None
    for host, port in addresses:
        with SimpleConsumer(host, port, **settings) as consumer:
            try:
                return consumer.coordination()
            except NoCoordinationError as error:
                raise NoCoordinationError(
                    f"{error}; consumers in groups need it: set coordination in broker.yaml"
                ) from None
            except SILENT as error:
                failure = error
    assert failure is not None
    raise failure


class ClusterSearch:
    """The brokers of the clusters that some addresses lead to. One thread at a time."""

    def __init__(
        self, listed: Sequence[BrokerAddress], connect: Callable[[BrokerAddress], SyncProducer]
    ) -> None:
        self._listed = listed
        self._connect = connect

    def find(self) -> dict[int, BrokerAddress]:
        """Ask the listed brokers where the brokers are, by id; not those that another has told of.

        Raises:
            BrokerUnavailableError, BrokerTimeoutError: none answers.
            RoutingError: two of them are the same broker, or it is not known which are.
            HermesError: as a broker answered.
        """
        asked: dict[int, BrokerAddress] = {}
        told: dict[int, BrokerAddress] = {}
        failure: HermesError | None = None
        for address in self._listed:
            if address in told.values():
                continue
            channel = self._connect(address).channel
            try:
                answer = channel.run(_brokers_behind(channel.broker_versions))
            except SILENT as error:
                failure = error
                continue
            if answer is None:
                if len(self._listed) == 1:
                    return {0: address}
                raise RoutingError(
                    f"{address} is a Kafka 0.7, which doesn't tell its id: name the brokers as "
                    "ID:HOST:PORT in broker_list"
                )
            broker_id, others = answer
            if broker_id in asked:
                raise RoutingError(
                    f"{asked[broker_id]} and {address} both say that they are broker {broker_id}: "
                    "name each broker once in broker_list, and give each its own broker_id; or "
                    "name them as ID:HOST:PORT"
                )
            asked[broker_id] = address
            told |= others
        if failure is not None:
            if not asked:
                raise failure
            _log.debug("a broker of broker_list does not answer: %s", failure)
        return dict(sorted({**told, **asked}.items()))


def _brokers_behind(
    versions: BrokerVersions,
) -> Conversation[tuple[int, Mapping[int, BrokerAddress]] | None]:
    """Ask a broker for its id and for the brokers of its cluster; None of a Kafka 0.7."""
    known = yield from versions.learn()
    if MetadataRequest.TYPE not in known:
        return None
    own = yield from conversations.metadata(())
    others: dict[int, BrokerAddress] = {}
    if ClusterBrokersRequest.TYPE in known:
        listed = yield from conversations.cluster_brokers()
        others = {each.broker_id: BrokerAddress(each.host, each.port) for each in listed}
    return own.broker_id, others
