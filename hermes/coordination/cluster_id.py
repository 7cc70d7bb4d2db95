"""The UUID of a cluster: a node that whoever needs it first creates, once.

Clients name partitions of other clusters by it, and recognize by it that two clusters are one.
Kafka 0.7 doesn't know the node and leaves it alone.
"""

import uuid
from collections.abc import Iterable
from typing import Final

from hermes.coordination.nodes import TreeSession
from hermes.errors import InvalidNodeError

#: Where it is; the node's data is the UUID in its usual form, in ASCII.
CLUSTER_ID_NODE: Final = "/cluster/id"

# The name space of UUIDs that are made of addresses.
_ADDRESSES: Final = uuid.UUID("8d7a5a2e-6c1f-5f0e-9d43-2a1b7c9e4f60")


def cluster_id(session: TreeSession) -> str:
    """Read a cluster's UUID, and create it if there is none.

    Of several that do so at once one is first, and all get its UUID. Raises InvalidNodeError: the
    node holds something else; CoordinationUnavailableError: ZooKeeper does not answer.
    """
    node = session.get(CLUSTER_ID_NODE)
    while node is None:
        session.create(CLUSTER_ID_NODE, new_cluster_id().encode())
        node = session.get(CLUSTER_ID_NODE)
    return parse_cluster_id(node.value, CLUSTER_ID_NODE)


def new_cluster_id() -> str:
    return str(uuid.uuid4())


def parse_cluster_id(value: bytes, where: str) -> str:
    """Read a UUID; InvalidNodeError if it is none."""
    try:
        return str(uuid.UUID(value.decode("ascii").strip()))
    except ValueError:
        raise InvalidNodeError(f"{where} holds {value[:40]!r}, not a UUID") from None


def id_of_addresses(addresses: Iterable[tuple[str, int]]) -> str:
    """A UUID for a cluster without coordination, which is known by its brokers' addresses only.

    The same brokers under other names are another cluster to this; their order doesn't matter.
    """
    listed = ",".join(sorted({f"{host.lower()}:{port}" for host, port in addresses}))
    return str(uuid.uuid5(_ADDRESSES, listed))
