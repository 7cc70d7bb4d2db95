"""Which right a node takes."""

import pytest

from hermes.coordination.node_rules import is_ruled, need_to_read, need_to_write
from hermes.security.access import CLUSTER, Operation, Resource

ADMIN = (Operation.ADMIN, CLUSTER)
GROUP, TOPIC = Resource.group("g"), Resource.topic("t")


@pytest.mark.parametrize(
    ("path", "read", "write"),
    [
        ("/", None, ADMIN),
        ("/consumers", None, ADMIN),
        ("/consumers/g", (Operation.DESCRIBE, GROUP), (Operation.GROUP, GROUP)),
        ("/consumers/g/offsets/t/0-0", (Operation.DESCRIBE, GROUP), (Operation.GROUP, GROUP)),
        ("/mirrors/g/p", (Operation.DESCRIBE, GROUP), (Operation.GROUP, GROUP)),
        ("/brokers/ids/0", None, ADMIN),
        ("/brokers/topics", None, ADMIN),
        ("/brokers/topics/t/0", (Operation.DESCRIBE, TOPIC), ADMIN),
        ("/cluster/origins/t", (Operation.DESCRIBE, TOPIC), (Operation.PRODUCE, TOPIC)),
        ("/cluster/id", None, ADMIN),
        ("/hermes/brokers/0", None, ADMIN),
        ("/hermes/kafka/topics", None, ADMIN),
        ("/hermes/kafka/topics/t", (Operation.DESCRIBE, TOPIC), ADMIN),
        ("/hermes/kafka/brokers", None, ADMIN),
        ("/hermes/kafka/brokers/t/0", (Operation.DESCRIBE, TOPIC), ADMIN),
        ("/hermes/kafka/replicas", None, ADMIN),
        ("/hermes/kafka/replicas/t", (Operation.DESCRIBE, TOPIC), ADMIN),
        ("/hermes/kafka/directories/0", None, ADMIN),
        ("/hermes/kafka/requested", ADMIN, ADMIN),
        ("/hermes/kafka/groups", None, ADMIN),
        ("/hermes/kafka/groups/g", (Operation.DESCRIBE, GROUP), ADMIN),
        ("/hermes/kafka/groups/g/clicks:0", (Operation.DESCRIBE, GROUP), ADMIN),
        ("/hermes/kafka/groups/%67", (Operation.DESCRIBE, GROUP), ADMIN),
        ("/hermes/kafka/changes", ADMIN, ADMIN),
        ("/hermes/kafka/producer_ids", ADMIN, ADMIN),
        ("/registry/leader", None, ADMIN),
        ("/locks/mine", ADMIN, ADMIN),
        ("/zookeeper/config", ADMIN, ADMIN),
        # What only looks like one of them.
        ("/consumersg", ADMIN, ADMIN),
        ("/consumers/", ADMIN, ADMIN),
        ("/consumers//g", ADMIN, ADMIN),
        ("//consumers/g", ADMIN, ADMIN),
        ("consumers/g", ADMIN, ADMIN),
        ("/kafka/consumers/g", ADMIN, ADMIN),
        ("/registryx", ADMIN, ADMIN),
        ("/brokers/idsx", ADMIN, ADMIN),
        ("/hermesx/brokers", ADMIN, ADMIN),
        ("/brokers/other", ADMIN, ADMIN),
        ("", ADMIN, ADMIN),
    ],
)
def test_what_a_node_takes(path: str, read: object, write: object) -> None:
    assert need_to_read(path) == read
    assert need_to_write(path) == write
    assert is_ruled(path) == (read != ADMIN)
