"""Who is to have copies of partitions: for another number of them, or of brokers. Pure functions.

A plan moves as little as it can. Copies go to racks that have none of the partition yet, as far as
there are any, and then to the broker with the fewest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hermes.client.kafka_replicas import Partition, Place
from hermes.errors import ClientError

#: Of each partition that is to move the brokers that are to have it, the preferred leader first.
Plan = dict[Place, tuple[int, ...]]


def with_copies(
    chosen: Iterable[Partition],
    count: int,
    partitions: Sequence[Partition],
    racks: Mapping[int, str],
) -> Plan:
    """Give partitions more copies, or fewer.

    Args:
        partitions: all there are, by which brokers are equally laden.
        racks: the brokers that are there, and where each stands.

    Raises ClientError: there aren't that many brokers.
    """
    if count > len(racks):
        raise ClientError(
            f"there can't be {count} copies on {len(racks)} brokers: add brokers first"
        )
    load, plan = load_of(partitions), Plan()
    for each in chosen:
        target = list(each.target)
        while len(target) < count:
            target.append(_best(racks, target, load))
            load[target[-1]] += 1
        while len(target) > count:
            target.remove(_least_needed(each, target, racks, load))
        if tuple(target) != each.target:
            plan[each.place] = tuple(target)
    return plan


def onto(broker_id: int, partitions: Sequence[Partition], racks: Mapping[int, str]) -> Plan:
    """Give a broker as many copies as the others have, of those that have the most."""
    load, plan = load_of(partitions), Plan()
    leads = Counter(each.target[0] for each in partitions)
    goal, goal_leads = (sum(each.values()) // len(racks) for each in (load, leads))
    left = {each.place: each for each in partitions if broker_id not in each.target}
    while load[broker_id] < goal and left:
        chosen = min(left, key=lambda place: _cost(left[place], broker_id, racks, load))
        leading = left[chosen].target[0] if leads[broker_id] < goal_leads else None
        donor = _donor(left[chosen], broker_id, racks, load, leading)
        target = left.pop(chosen).target
        if donor is None or load[donor] <= goal:
            continue
        plan[chosen] = tuple(broker_id if each == donor else each for each in target)
        load[donor] -= 1
        load[broker_id] += 1
        leads[broker_id] += donor == target[0]
    return plan


def without(broker_id: int, partitions: Sequence[Partition], racks: Mapping[int, str]) -> Plan:
    """Leave a broker no copy; what it has goes to the others.

    Raises ClientError: there is no broker left that could have a copy.
    """
    others = {each: rack for each, rack in racks.items() if each != broker_id}
    load, plan = load_of(partitions), Plan()
    for each in partitions:
        if broker_id not in each.target:
            continue
        kept = [one for one in each.target if one != broker_id]
        if len(kept) >= len(others):
            topic, number = each.place
            raise ClientError(
                f"{topic}:{number} has {len(kept) + 1} copies, and there are {len(others)} other "
                "brokers: add one, or lower the number of copies (hermes replicas move --replicas)"
            )
        heir = _best(others, kept, load)
        load[heir] += 1
        plan[each.place] = tuple(heir if one == broker_id else one for one in each.target)
    return plan


def load_of(partitions: Iterable[Partition]) -> Counter[int]:
    """How many copies each broker has, or will have."""
    return Counter(each for partition in partitions for each in partition.target)


def _best(racks: Mapping[int, str], taken: Sequence[int], load: Mapping[int, int]) -> int:
    used = Counter(racks.get(each) for each in taken)
    free = [each for each in racks if each not in taken]
    return min(free, key=lambda each: (used[racks[each]], load[each], each))


def _least_needed(
    partition: Partition, target: Sequence[int], racks: Mapping[int, str], load: Mapping[int, int]
) -> int:
    """Whose copy goes: of one that isn't there, or not in sync, or has a rack beside it."""
    used = Counter(racks.get(each) for each in target)

    def need(broker_id: int) -> tuple[bool, ...] | tuple[int, ...]:
        return (
            broker_id == partition.leader,
            broker_id in racks,
            broker_id in partition.in_sync,
            -used[racks.get(broker_id)],
            -load[broker_id],
            -target.index(broker_id),
        )

    return min(target, key=need)


def _donor(
    partition: Partition,
    broker_id: int,
    racks: Mapping[int, str],
    load: Mapping[int, int],
    leading: int | None = None,
) -> int | None:
    """Who gives its copy away, so that there are as many racks as before; None for nobody.

    `leading`: who leads, where the broker is to lead some, too.
    """
    known = [racks.get(each) for each in partition.target]
    givers = []
    for each in partition.target:
        after = [racks.get(one) for one in partition.target if one != each] + [racks[broker_id]]
        if len(set(after)) >= len(set(known)):
            givers.append(each)
    return max(givers, key=lambda each: (load[each], each == leading, each), default=None)


def _cost(
    partition: Partition, broker_id: int, racks: Mapping[int, str], load: Mapping[int, int]
) -> tuple[int, Place]:
    donor = _donor(partition, broker_id, racks, load)
    return 0 if donor is None else -load[donor], partition.place
