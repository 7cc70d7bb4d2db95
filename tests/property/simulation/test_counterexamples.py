"""The three ways in which first drafts of replication lost messages, step by step."""

from dataclasses import dataclass, field
from itertools import count

from hermes.protocol import NOBODY
from hermes.replication.electing import Refusals
from hermes.replication.following import Append, Cut
from hermes.replication.leading import LeaderSettings
from hermes.replication.messages import Answer, Diverging, LogEnds, Records, Refused, ReplicaFetch
from hermes.replication.replica import BeginEpoch, Change, Fetch, LogFacts, Replica
from hermes.replication.state import PartitionState


@dataclass
class Node:
    """What stands in coordination."""

    state: PartitionState
    version: int = 1
    lives: dict[int, int] = field(default_factory=dict)


class Broker:
    """A broker whose log has of each message the epoch that it was appended in, all flushed."""

    def __init__(self, broker_id: int, life: int, node: Node, epochs: list[int]) -> None:
        self.broker_id, self.node, self.epochs = broker_id, node, epochs
        self.replica = Replica(broker_id, LeaderSettings(min_insync=1), count(1), Refusals())
        self.watermark = 0
        self.fetch: ReplicaFetch | None = None  # under way
        node.lives[broker_id] = life
        self.replica.registered(life)

    # What `Replica` asks of a log.

    @property
    def ends(self) -> LogEnds:
        return LogEnds(0, len(self.epochs), len(self.epochs))

    def epoch_before(self, offset: int) -> int:
        return self.epochs[offset - 1] if 0 < offset <= len(self.epochs) else -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        last = max((each for each in self.epochs if each <= epoch), default=-1)
        if last < 0:
            return -1, -1
        return last, max(place for place, each in enumerate(self.epochs) if each == last) + 1

    # Steps.

    def look(self) -> None:
        self.replica.learned(self.node.state, self.node.version, dict(self.node.lives))

    def turn(self, now: float) -> ReplicaFetch | None:
        """Do what is due, changes of the node at once; the fetch that is under way then."""
        for _ in range(5):
            last = self.epochs[-1] if self.epochs else -1
            commands = self.replica.due(LogFacts(self.ends, last, self.watermark), now)
            if not commands:
                break
            for each in commands:
                if isinstance(each, Change):
                    self.node.state = each.make(self.node.state)
                    self.node.version += 1
                    self.replica.change_ended(self.node.state, self.node.version, is_done=True)
                elif isinstance(each, Fetch):
                    self.fetch = each.fetch
                elif isinstance(each, BeginEpoch):
                    pass
        return self.fetch

    def serve(self, fetch: ReplicaFetch, now: float) -> Answer:
        leading = self.replica.leading
        assert leading is not None
        life = self.replica.lives.get(fetch.broker_id)
        verdict = leading.judge(fetch, life, self.ends, self)
        if verdict is not None:
            return verdict
        leading.fetched(fetch, len(self.epochs), now)
        self.watermark = leading.advance(len(self.epochs), self.replica.lives, now)
        return leading.records(0)

    def take(self, fetch: ReplicaFetch, answer: Answer, leader: "Broker") -> object:
        found = self.replica.answered(fetch.token, answer, self.ends, self)
        if found is not None:
            self.fetch = None
        if isinstance(found, Append):
            self.epochs += leader.epochs[fetch.offset :]
            assert self.replica.following is not None
            self.replica.following.written()
        elif isinstance(found, Cut):
            del self.epochs[found.offset :]
            self.replica.cut()
        return found


def follow(follower: Broker, leader: Broker, now: float) -> None:
    """Fetch until there is nothing new, and acknowledge that."""
    for _ in range(4):
        fetch = follower.turn(now)
        assert fetch is not None
        follower.take(fetch, leader.serve(fetch, now), leader)
    assert follower.epochs == leader.epochs


def test_who_comes_back_with_an_empty_disk_does_not_lead_again() -> None:
    """It took itself out, was still named as leader, and bumped "its" epoch with an empty log."""
    node = Node(PartitionState((1, 2), 1, 11, 1, frozenset({1, 2})))
    whole = Broker(2, 22, node, [1, 1, 1])
    whole.replica.opened(is_whole=True)
    wiped = Broker(1, 12, node, [])
    wiped.replica.opened(is_whole=False)
    wiped.look()
    wiped.turn(0)
    assert (node.state.leader, node.state.isr) == (NOBODY, frozenset({2}))
    # It dies before anybody else acts, and comes back once more, before and after that is known.
    again = Broker(1, 13, node, [])
    again.replica.opened(is_whole=True)
    again.look()
    assert again.turn(10) is None
    assert node.state.leader == NOBODY
    whole.look()
    whole.turn(20)
    assert (node.state.leader, node.state.epoch) == (2, 3)
    again.look()
    follow(again, whole, 21)


def test_what_a_copy_had_in_a_former_life_lets_nobody_in() -> None:
    """The leader remembered what was acknowledged, and took the empty copy into the ISR for it."""
    node = Node(PartitionState((1, 2), 1, 11, 1, frozenset({1, 2})))
    leader, follower = Broker(1, 11, node, [0, 0, 0]), Broker(2, 22, node, [])
    for each in (leader, follower):
        each.replica.opened(is_whole=True)
        each.look()
    for each in (leader, follower):
        each.look()
    leader.turn(0)
    follow(follower, leader, 1)
    late = ReplicaFetch(2, 22, 1, 3, 0, 3, 99)  # acknowledges all, and is still under way
    emptied = Broker(2, 23, node, [])
    emptied.replica.opened(is_whole=False)
    emptied.look()
    emptied.turn(2)
    assert node.state.isr == frozenset({1})
    # The leader hears of the new epoch, and not yet of the new life.
    node.lives[2] = 22
    leader.look()
    leader.turn(3)
    assert isinstance(leader.serve(late, 3), Refused)
    leader.turn(4)
    assert node.state.isr == frozenset({1})
    node.lives[2] = 23
    for each in (leader, emptied):
        each.look()
        each.turn(5)
    leader.turn(6)
    assert node.state.isr == frozenset({1}), "it has nothing yet"
    follow(emptied, leader, 7)
    leader.turn(8)
    assert node.state.isr == frozenset({1, 2})


def test_an_answer_that_comes_again_cuts_nothing() -> None:
    """Histories part, it said, and cut what was acknowledged since, in the same epoch."""
    node = Node(PartitionState((1, 2), 1, 11, 2, frozenset({1})))
    leader, follower = Broker(1, 11, node, [1, 1]), Broker(2, 22, node, [1, 1, 1, 1])
    for each in (leader, follower):
        each.replica.opened(is_whole=True)
    for each in (leader, follower):
        each.look()
        first = each.turn(0)
    assert first is not None
    parted = leader.serve(first, 0)
    assert parted == Diverging(1, 2, 0)
    assert follower.take(first, parted, leader) == Cut(2)
    leader.epochs += [2, 2]
    follow(follower, leader, 1)
    assert leader.watermark == 4
    assert follower.take(first, parted, leader) is None
    fetch = follower.turn(2)
    assert fetch is not None
    assert follower.take(first, parted, leader) is None, "nor while another is under way"
    assert follower.epochs == [1, 1, 2, 2]
    assert isinstance(leader.serve(fetch, 2), Records)
