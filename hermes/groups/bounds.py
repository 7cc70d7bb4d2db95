"""What bounds the groups of a broker, how a request is refused, and what is counted."""

from typing import NamedTuple

from hermes.errors import HermesError
from hermes.groups.consumer_values import ConsumerSettings
from hermes.groups.values import GroupSettings
from hermes.protocol.kafka_errors import Code


class CoordinatorSettings(NamedTuple):
    """What bounds all groups of a broker.

    Attributes:
        group: what bounds each classic group.
        consumer: what bounds each consumer group.
        max_groups: how many there may be.
        max_bytes: what they may hold together.
        retention_ms: for how long offsets are kept of which nobody makes use.
    """

    group: GroupSettings = GroupSettings()
    consumer: ConsumerSettings = ConsumerSettings()
    max_groups: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000


class RefusedError(HermesError):
    """A request can't be carried out.

    Args:
        code: what the client is told.
    """

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


class Counts:
    """What was done so far, for the metrics.

    Attributes:
        rebalances: generations that began, and target assignments that were made.
        commits: offsets that were committed.
        expired: offsets that have expired.
        moved: groups that were given up since they are another broker's.
        failures: writes that failed.
    """

    def __init__(self) -> None:
        self.rebalances = self.commits = self.expired = self.moved = self.failures = 0
