"""The mirror's part in the audit: a counter whose reports go to the target, or where it is told."""

from functools import partial
from typing import Final

from hermes.audit.counting import TierCounter
from hermes.audit.publishing import Publisher
from hermes.client import ProducerConfig
from hermes.config.addresses import BrokerAddress
from hermes.config.mirror import MirrorClusterAddress, MirrorConfig
from hermes.mirror.target_cluster import coordination_of

_TIER: Final = "mirror:"


class MirrorCounter(TierCounter):
    """Counts what a mirror has copied, and reports it to the topic hermes-audit of a cluster."""

    def __init__(self, config: MirrorConfig) -> None:
        # That may come later than the mirror.
        to = partial(_producer_config, config.audit_to or config.target)
        self._publisher = Publisher(to)
        tier = f"{_TIER}{config.name}"
        super().__init__(tier, self._publisher, window_ms=config.audit_window_ms)

    def close(self) -> bool:
        closed = super().close()
        self._publisher.close()
        return closed


def _producer_config(cluster: MirrorClusterAddress) -> ProducerConfig:
    connect = cluster.zookeeper or coordination_of(cluster)
    settings = cluster.security.settings()
    if connect:
        return ProducerConfig(zookeeper_connect=connect, **settings)
    brokers = [f"{n}:{BrokerAddress(*place)}" for n, place in enumerate(cluster.brokers)]
    return ProducerConfig(broker_list=",".join(brokers), **settings)
