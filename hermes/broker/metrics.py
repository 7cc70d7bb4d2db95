"""What one broker has done since its start, as plain counters; written to the log now and then."""

from dataclasses import asdict, dataclass

__all__ = ["Metrics"]


@dataclass(slots=True)
class Metrics:
    """Counters of one broker; all of them only grow, save `connections`.

    Attributes:
        connections: connections that are open now.
        connections_refused: connections that were closed at once, being too many.
        requests_refused: requests that ended in closing their connection.
        produce_requests: produce requests that were taken, a multiproduce counting once.
        messages_in: messages appended; the ones inside compressed sets are counted.
        bytes_in: bytes appended to logs.
        oversized_sets: message sets dropped for a message above `max_message_bytes`.
        fetch_requests: fetches answered, each of a multifetch counting.
        bytes_out: bytes of messages handed out.
    """

    connections: int = 0
    connections_refused: int = 0
    requests_refused: int = 0
    produce_requests: int = 0
    messages_in: int = 0
    bytes_in: int = 0
    oversized_sets: int = 0
    fetch_requests: int = 0
    bytes_out: int = 0

    def snapshot(self) -> dict[str, int]:
        """All counters by name, as a copy."""
        return asdict(self)
