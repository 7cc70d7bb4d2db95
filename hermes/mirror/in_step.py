"""Keeps topics of Kafka's format in step with the source's: how many partitions, which settings.

Both clusters are asked by Kafka's protocol. What is set for a topic at the source is set at the
target, if that knows the setting; what is set there alone stays, and so do the settings that say
how replicas or timestamps are treated.
"""

import time
from collections.abc import Callable
from typing import Final

from hermes.errors import BrokerUnavailableError, HermesError
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import TOPIC_RESOURCE, KafkaCluster, check

_TIMEOUT_MS: Final = 10_000
_LOOK_SECONDS: Final = 30.0
_SET_FOR_TOPIC: Final = 1  # as where a setting comes from
_SET: Final = 0  # as what becomes of it
_OF_THE_CLUSTER: Final = (
    "follower.replication",
    "leader.replication",
    "message.timestamp",
    "min.insync.replicas",
    "unclean.leader.election",
)


class TopicsInStep:
    """For one thread.

    Args:
        target: gives the target; None where it has no listener for Kafka's clients.
    """

    def __init__(
        self,
        what: tuple[str, ...],
        target: Callable[[], KafkaCluster | None],
        problems: Problems,
    ) -> None:
        self._what = what
        self._find_target = target
        self._problems = problems
        self._looked: dict[str, float] = {}

    def has_grown(self, topic: str, wanted: int, count: int) -> bool:
        """Give a topic of the target as many partitions as are wanted; whether it had fewer.

        Raises HermesError: it can't be given them.
        """
        if "partitions" not in self._what or count >= wanted:
            return False
        answer = self._target().ask_any(
            "CreatePartitions",
            3,
            topics=[{"name": topic, "count": wanted, "assignments": None}],
            timeout=_TIMEOUT_MS,
            validate_only=False,
        )
        (found,) = answer.results
        check(found.error_code, f"topic {topic!r} of the target", found.error_message)
        return True

    def follow_settings(self, source: KafkaCluster, topic: str, target_topic: str) -> None:
        """Set what differs, now and then; what is wrong is told, and mirroring goes on."""
        now = time.monotonic()
        if "settings" not in self._what or now < self._looked.get(target_topic, 0.0):
            return
        self._looked[target_topic] = now + _LOOK_SECONDS
        what = f"settings of the target's topic {target_topic!r}"
        try:
            self._set(topic, source, target_topic)
        except HermesError as error:
            self._problems.begin(what, str(error))
        else:
            self._problems.end(what)

    # -- inside ---------------------------------------------------------------------------------

    def _target(self) -> KafkaCluster:
        found = self._find_target()
        if found is None:
            raise BrokerUnavailableError("no broker of the target serves Kafka's clients")
        return found

    def _set(self, topic: str, source: KafkaCluster, target_topic: str) -> None:
        target = self._target()
        there = {each.name: each for each in target.topic_settings(target_topic)}
        changes = [
            {"name": each.name, "config_operation": _SET, "value": each.value}
            for each in source.topic_settings(topic)
            if each.config_source == _SET_FOR_TOPIC
            and not each.name.startswith(_OF_THE_CLUSTER)
            and each.name in there
            and not there[each.name].read_only
            and there[each.name].value != each.value
        ]
        if not changes:
            return
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": target_topic,
            "configs": changes,
        }
        answer = target.ask_any(
            "IncrementalAlterConfigs", 1, resources=[resource], validate_only=False
        )
        (found,) = answer.responses
        check(found.error_code, f"topic {target_topic!r}", found.error_message)
