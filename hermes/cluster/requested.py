"""What Kafka's clients set for the whole broker or cluster: ACLs and quotas, changed and kept."""

from dataclasses import replace
from typing import Final

from hermes.cluster.cluster_value import ClusterValue
from hermes.cluster.shared import Shared
from hermes.config.requested import Requested, in_both
from hermes.coordination.kafka_topics import KAFKA_REQUESTED
from hermes.quoting import printable
from hermes.storage.requested_file import REQUESTED_NAME

#: How much of that a line shows, in characters.
_BOTH_LENGTH: Final = 500


class RequestedChanges(ClusterValue[Requested]):
    """The ACLs and quotas in force, of which `BrokerConfig.requested` has the value."""

    node = KAFKA_REQUESTED
    file_name = REQUESTED_NAME
    what = "ACLs and quotas"

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._told: list[str] = []  # of what both say something

    @property
    def now(self) -> Requested:
        return self._shared.config.requested

    def _decode(self, data: bytes) -> Requested:
        return Requested.decode(data)

    def _encode(self, value: Requested) -> bytes:
        return value.encode()

    def _is_nothing(self, value: Requested) -> bool:
        return not value.acls and not value.quotas

    def _put_in_force(self, value: Requested) -> None:
        settings = self._shared.settings
        settings.use(replace(settings.config, requested=value))
        config = settings.config
        both = in_both(config.access or (), config.quotas or (), value)
        if both and both != self._told:
            self._log.warn(
                "both",
                "access and quotas of broker.yaml and of the cluster: {both}; quotas are as "
                "broker.yaml says, and what either denies is denied",
                both=printable("; ".join(both), _BOTH_LENGTH),
            )
        self._told = both

    def _unknown(self) -> None:
        # There may be an ACL that denies something.
        self._put_in_force(Requested(is_known=False))
