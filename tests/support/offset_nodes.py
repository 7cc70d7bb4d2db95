"""The path of an offset that a group has committed, for tests that look into coordination.

A broker writes the nodes of a group together, below its path, and has no use for this.
"""

from hermes.coordination.kafka_groups import group_node_path

__all__ = ["offset_node_path"]


def offset_node_path(group: str, topic: str, partition: int) -> str:
    return f"{group_node_path(group)}/{topic}:{partition}"
