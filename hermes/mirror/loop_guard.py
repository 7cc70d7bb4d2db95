"""Refuses what would make messages go round: A to B and back to A, through however many clusters.

Each cluster keeps, for each topic, the clusters that its messages came from: in its coordination
(`hermes.coordination.origins`), or, of topics of Kafka's format, in a topic (`kafka_origins`).
A mirror that would write a topic into one of these is refused; one that may write adds its source,
and all that the topic came from before, to the target's.
"""

import random
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from hermes.config.topic import SCHEMAS_TOPIC
from hermes.errors import HermesError, InvalidMessageError, InvalidNodeError
from hermes.mirror.kafka_origins import ORIGINS_TOPIC
from hermes.quoting import quoted

#: How old an answer may be. Not the same for all, or two mirrors that refuse each other go on so.
_RECHECK_SECONDS: Final = (4.0, 6.0)

# Topics that are of one cluster, and who writes them there.
_WRITERS: Final = {SCHEMAS_TOPIC: "schema registry", ORIGINS_TOPIC: "mirrors"}


class Origins(Protocol):
    """The origins of one cluster's topics, as `hermes.coordination.origins` has them."""

    def read(self, topic: str) -> Mapping[str, str]: ...

    def add(self, topic: str, origins: Mapping[str, str]) -> list[str]: ...

    def remove(self, topic: str, clusters: list[str]) -> None: ...


class LoopGuard:
    """Says which topics of a source may go to the target. For one thread.

    Args:
        source: the source's; None where it keeps none: then its topics are taken for its own.
        target: the target's; None where it keeps none: then nobody learns where its topics come
            from.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        mirror: str,
        source_id: str,
        target_id: str,
        source: Origins | None,
        target: Origins | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirror = mirror
        self._source_id, self._target_id = source_id, target_id
        self._source, self._target = source, target
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, str]] = {}

    def admit(self, topic: str, target_topic: str) -> str:
        """Say why a topic may not be mirrored; empty when it may. The answer is good for seconds.

        Raises HermesError: one of the two doesn't answer, and nothing is known from before.
        """
        if self._source_id == self._target_id:
            return f"the source is the target itself: both are the cluster {self._target_id}"
        writer = _WRITERS.get(target_topic)
        if writer is not None:
            return f"{target_topic} is written by the target's own {writer}: rename it"
        until, reason = self._known.get((topic, target_topic), (0.0, None))
        if reason is not None and self._clock() < until:
            return reason
        try:
            found = self._look(topic, target_topic)
        except (InvalidNodeError, InvalidMessageError) as error:
            found = f"nobody can say whether it would make a loop: {error}"
        except HermesError:
            if reason is None:
                raise
            found = reason
        pause = random.uniform(*_RECHECK_SECONDS)
        self._known[topic, target_topic] = self._clock() + pause, found
        return found

    def _look(self, topic: str, target_topic: str) -> str:
        origins = self._origins(topic)
        if self._target_id in origins:
            return self._refusal(topic, origins)
        if self._target is None:
            return ""
        added = self._target.add(target_topic, {**origins, self._source_id: self._mirror})
        if added:  # somebody may have done the same the other way round at this very moment
            origins = self._origins(topic)
            if self._target_id in origins:
                self._target.remove(target_topic, added)
                return self._refusal(topic, origins)
        return ""

    def _origins(self, topic: str) -> Mapping[str, str]:
        return {} if self._source is None else self._source.read(topic)

    def _refusal(self, topic: str, origins: Mapping[str, str]) -> str:
        by = origins[self._target_id]
        return (
            f"it would make a loop: {topic} comes from the target cluster {self._target_id} "
            f"already, by the mirror {quoted(by)}; leave it out here or there, or, once no mirror "
            f"brings it any more, `hermes mirror origins --forget {topic}` at the source"
        )
