"""How fast brokers make copies of partitions, as operators have set it while they run.

    /hermes/kafka/throttle    persistent    {"<broker>": {"leader": N, "follower": N}, ...}

Both are bytes a second. It stands here so that it can be set for a broker that doesn't answer.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hermes.errors import InvalidNodeError
from hermes.quoting import quoted

KAFKA_THROTTLE: Final = "/hermes/kafka/throttle"

_KEYS: Final = ("leader", "follower")


class Throttle(NamedTuple):
    """Bytes a second that a broker sends of what it leads, and fetches; None: without a bound."""

    leader: int | None = None
    follower: int | None = None


def format_throttles(throttles: Mapping[int, Throttle]) -> bytes:
    """Write all that are set."""
    shown = {
        str(broker_id): {key: rate for key, rate in each._asdict().items() if rate is not None}
        for broker_id, each in sorted(throttles.items())
        if each != Throttle()
    }
    return json.dumps(shown).encode()


def parse_throttles(value: bytes) -> dict[int, Throttle]:
    """Read them; raises InvalidNodeError where that can't be understood."""
    try:
        read = json.loads(value or b"{}")
        return {int(key): _parsed(each) for key, each in read.items()}
    except (ValueError, AttributeError, RecursionError):
        raise InvalidNodeError(
            f"{KAFKA_THROTTLE}: expected rates of brokers as JSON, got {quoted(value)}; delete the "
            "node, and set them again"
        ) from None


def _parsed(rates: Mapping[str, Any]) -> Throttle:
    found = [rates.get(key) for key in _KEYS]
    if any(each is not None and (type(each) is not int or each < 0) for each in found):
        raise ValueError("a rate is a number from 0 on")
    return Throttle(*found)
