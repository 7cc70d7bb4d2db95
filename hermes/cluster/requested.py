"""What Kafka's clients set for the whole broker or cluster: ACLs and quotas, changed and kept."""

from dataclasses import replace

from hermes.cluster.cluster_value import ClusterValue
from hermes.config.requested import Requested
from hermes.coordination.kafka_topics import KAFKA_REQUESTED
from hermes.storage.requested_file import REQUESTED_NAME


class RequestedChanges(ClusterValue[Requested]):
    """The ACLs and quotas in force, of which `BrokerConfig.requested` has the value."""

    node = KAFKA_REQUESTED
    file_name = REQUESTED_NAME
    what = "ACLs and quotas"

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

    def _unknown(self) -> None:
        # There may be an ACL that denies something.
        self._put_in_force(Requested(is_known=False))
