"""Changes of who has copies of partitions and who leads them, as operators ask for them."""

from collections.abc import Callable, Mapping

from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.replica_placing import ReplicaPlacing
from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.throttles import Throttle
from hermes.errors import HermesError, UnknownTopicError
from hermes.quoting import quoted
from hermes.replication.state import PartitionState, TopicReplicas

#: Makes the new state of the present one. What it raises refuses the change of this partition.
StateChange = Callable[[PartitionState], PartitionState]


class ReplicaChanges:
    """Lives in the reactor's thread. `part`: as of `TopicChanges`.

    Attributes:
        placing: where copies can be.
    """

    def __init__(self, placing: ReplicaPlacing, part: ClusterPart | None) -> None:
        self.placing = placing
        self._part = part

    async def change(
        self,
        topic: ClusterTopic,
        changes: Mapping[int, StateChange],
        sole: Callable[[int], PartitionState],
    ) -> Mapping[int, HermesError]:
        """Change the states of some of a topic's partitions, in one step.

        `sole`: gives the state of a partition that has one copy and never had several.

        Returns why some of them weren't changed; the others are in the state that was asked for.
        Raises HermesError: none is, or nobody knows.
        """
        refused: dict[int, HermesError] = {}

        def changed(node: TopicNode, before: TopicReplicas | None) -> TopicReplicas | None:
            if node.id != topic.id:
                raise UnknownTopicError(f"there is no topic {quoted(topic.name)} any more")
            refused.clear()  # others were quicker
            known = before is not None and before.id == topic.id
            after = before if known and before is not None else TopicReplicas(topic.id, ())
            found = after
            for number, change in changes.items():
                state = after.state_of(number) or sole(number)
                try:
                    wanted = change(state)
                except HermesError as error:
                    refused[number] = error
                    continue
                if wanted != state:
                    after = after.with_state(number, wanted)
            return None if after is found else after

        if self._part is None:
            changed(TopicNode(topic.id, topic.format, topic.partitions, {}), None)
        else:
            await self._part.cluster.do(lambda tree: tree.change_replicas(topic.name, changed))
        return refused

    async def throttle(self, broker_id: int, change: Callable[[Throttle], Throttle]) -> None:
        """Change how fast a broker makes copies for moves, whether it answers or not."""
        if self._part is not None:  # else there are none
            await self._part.cluster.do(lambda tree: tree.change_throttle(broker_id, change))
