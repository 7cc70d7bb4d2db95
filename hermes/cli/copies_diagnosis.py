"""What `hermes doctor` finds out about copies of partitions, from coordination."""

from collections import Counter
from collections.abc import Collection, Iterator

from hermes.coordination.nodes import TreeSession
from hermes.coordination.replicas import ReplicaTree
from hermes.errors import CoordinationNotAuthorizedError

#: How many partitions are named.
_MOST_NAMED = 5

#: From how many times its share on a broker leads too much.
_UNEVEN = 2


def find_about_copies(
    session: TreeSession, brokers: Collection[int], *, is_embedded: bool
) -> Iterator[tuple[bool, str]]:
    """Whether what was found is well, and what that is.

    `is_embedded`: whether coordination is one process, in one of the brokers.
    """
    tree = ReplicaTree(session)
    try:
        nodes = tree.read(tree.topics())
    except CoordinationNotAuthorizedError:
        return
    count, led = 0, Counter[int]()
    unled, behind = list[str](), list[str]()
    for topic, node in sorted(nodes.items()):
        for number, state in enumerate(node.partitions):
            if state is None or len(state.replicas) == 1:
                continue
            count += 1
            if state.leader not in brokers:
                unled.append(f"{topic}-{number}")
                continue
            led[state.leader] += 1
            if state.isr < set(state.replicas):
                behind.append(f"{topic}-{number}")
    if not count:
        return
    why = "`hermes replicas list --problems` tells why"
    yield True, f"{count} partitions have several copies"
    if unled:
        yield False, f"nobody leads {_named(unled)}: {why}"
    if behind:
        yield False, f"copies aren't in sync of {_named(behind)}: {why}"
    share = count / max(len(brokers), 1)
    for broker_id, leads in led.most_common(1):
        if leads > _UNEVEN * share + 1:
            even = "spread it by `hermes replicas elect`"
            yield False, f"broker {broker_id} leads {leads} of them: {even}"
    if is_embedded:
        yield (
            False,
            "coordination is one process, in one broker: while that is down nobody is elected; use "
            "three ZooKeepers (docs/replication.md)",
        )


def _named(partitions: list[str]) -> str:
    more = len(partitions) - _MOST_NAMED
    return ", ".join(partitions[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
