"""What is told of produces that are refused: to the log, in metrics, and to who sent them."""

from hermes.cluster.shared import Shared
from hermes.errors import (
    DiskFullError,
    HermesError,
    MessageTooLargeError,
    NotAuthorizedError,
    StorageError,
    TooManyTopicsError,
)
from hermes.protocol import RANDOM_PARTITION
from hermes.quoting import quoted
from hermes.server.clients import Client
from hermes.server.metrics import reason_of
from hermes.server.outcomes import CloseConnection
from hermes.storage.layout import partition_directory


class RefusedProduces:
    def __init__(self, shared: Shared) -> None:
        self._metrics = shared.metrics
        self._log = shared.lines
        self._refusals = shared.refusals

    def count(self, kind: str, error: HermesError, client: Client) -> None:
        if isinstance(error, NotAuthorizedError):
            self._refusals.report(client, error, kind)
        else:
            self._metrics.refuse(kind, reason_of(error))

    def drop_oversized(
        self, topic: str, partition: int, error: MessageTooLargeError, client: Client
    ) -> None:
        self._metrics.oversized_sets += 1
        self._log.warn(
            "oversized",
            "dropped a message set of {client} for {place}: {error}",
            client=client,
            place=_place(topic, partition),
            topic=topic,
            partition=partition,
            error=error,
        )

    def refusal(
        self, topic: str, partition: int, error: Exception, client: Client
    ) -> CloseConnection:
        """Log why a set was refused, where that is the broker's trouble; how 0.7's clients hear."""
        if isinstance(error, StorageError):
            self._log.error(
                "full" if isinstance(error, DiskFullError) else "storage",
                "could not append to {place}: {error}",
                place=_place(topic, partition),
                topic=topic,
                partition=partition,
                error=error,
            )
        elif isinstance(error, TooManyTopicsError):
            self._log.warn(
                "topics", "a limit is reached for {client}: {error}", client=client, error=error
            )
        where = "" if partition == RANDOM_PARTITION else f" partition {partition}"
        return CloseConnection(
            f"produce to {quoted(topic)}{where}: {error}",
            "produce",
            reason_of(error),
        )


def _place(topic: str, partition: int) -> str:
    """A partition as log lines name it; the topic alone where the broker was to choose one."""
    return topic if partition == RANDOM_PARTITION else partition_directory(topic, partition)
