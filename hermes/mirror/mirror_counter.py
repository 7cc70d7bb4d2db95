"""The mirror's part in the audit: a counter whose reports go to the target."""

from collections.abc import Sequence
from typing import Final

from hermes.audit.counting import TierCounter
from hermes.audit.publishing import Publisher
from hermes.client import ProducerConfig
from hermes.config import MirrorConfig
from hermes.config.mirror import MirrorClusterAddress
from hermes.mirror.target_cluster import coordination_of

_TIER: Final = "mirror:"


class MirrorCounter(TierCounter):
    """Counts what a mirror has copied, and reports it to the target's topic hermes-audit."""

    def __init__(self, config: MirrorConfig) -> None:
        self._target_publisher = _TargetPublisher(config.target)
        super().__init__(
            f"{_TIER}{config.name}", self._target_publisher, window_ms=config.audit_window_ms
        )

    def close(self) -> bool:
        closed = super().close()
        self._target_publisher.close()
        return closed


class _TargetPublisher:
    """Sends events to a target, which may come later than the mirror."""

    def __init__(self, target: MirrorClusterAddress) -> None:
        self._target = target
        self._publisher: Publisher | None = None

    def publish(self, payloads: Sequence[bytes]) -> None:
        if self._publisher is None:
            self._publisher = Publisher(_producer_config(self._target))
        self._publisher.publish(payloads)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()


def _producer_config(target: MirrorClusterAddress) -> ProducerConfig:
    connect = target.zookeeper or coordination_of(target)
    settings = target.security.settings()
    if connect:
        return ProducerConfig(zookeeper_connect=connect, **settings)
    brokers = [f"{n}:{host}:{port}" for n, (host, port) in enumerate(target.brokers)]
    return ProducerConfig(broker_list=",".join(brokers), **settings)
