"""Members of groups, as clients of simulated brokers: of the classic kind, and of KIP-848's.

They do what Kafka's consumers do: find the coordinator, join, read what they are given from where
the group has come to, commit, give partitions up when they are told to, and begin anew when they
are fenced. A `Ledger` has what they were told.
"""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from uuid import UUID

import requests
from clients import found_topic
from invariants_today import Books, Partition
from ledger import CLOCKS, REBALANCE_MS, SESSION_MS, Ledger, Place
from requests import Client, LostError, RefusedError
from simulated_consumers import protocols

from hermes.groups.consumer_values import ConsumerHeartbeat, TopicIdPartition
from hermes.groups.offsets import Committed, TopicPartition
from hermes.groups.values import Join, Leaving, Sync
from hermes.protocol.kafka_errors import Code

__all__ = ["ClassicMember", "ConsumerMember", "Member"]

_BEAT_SECONDS = 0.5

#: After these a member is nobody any more.
_FENCED = frozenset(
    {
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.FENCED_MEMBER_EPOCH,
        Code.STALE_MEMBER_EPOCH,
        Code.FENCED_INSTANCE_ID,
    }
)


class Member:
    """What members of both kinds have in common.

    Attributes:
        owned: what it reads now, and how far it has come; places: what it ever has.
        heard_us: when it sent the last request that showed that it is in the group; `heard_by` is
            the broker that said so.
        is_revoking: it has given partitions up, and the coordinator hasn't said that it knows.
    """

    is_revoking = False

    def __init__(
        self, client: Client, books: Books, ledger: Ledger, topics: Sequence[str], chance: Random
    ) -> None:
        self.client, self.books, self.ledger = client, books, ledger
        self.chance = chance
        self.topics = tuple(topics)
        self.owned: dict[Place, int] = {}
        self.places: set[Place] = set()
        self.heard_us = 0
        self.heard_by: int | None = None
        self.member_id = ""
        self._coordinator: int | None = None
        ledger.members.append(self)

    def __str__(self) -> str:
        return self.client.name

    @property
    def is_alive(self) -> bool:
        return not self.client.process.is_dead and not self.client.is_over

    # -- asking ---------------------------------------------------------------------------------

    async def ask(self, request: Any, *arguments: Any, seconds: float = 5.0) -> Any:
        """Ask the coordinator; None where it didn't answer, or is another one by now."""
        try:
            if self._coordinator is None or self.chance.random() < 0.05:
                broker = self.chance.choice(list(self.client.brokers))
                self._coordinator = await self.client.ask(
                    broker, requests.coordinator, self.ledger.group
                )
            if self._coordinator is None:
                return None
            found = await self.client.ask(
                self._coordinator, request, self.ledger.group, *arguments, seconds=seconds
            )
        except (LostError, RefusedError) as error:
            if isinstance(error, LostError) or error.code in (
                Code.NOT_COORDINATOR,
                Code.COORDINATOR_NOT_AVAILABLE,
                Code.NOT_LEADER_OR_FOLLOWER,
            ):
                self._coordinator = None
                return None
            return error.code
        if found in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
            return None
        return found

    async def _sizes(self) -> dict[str, tuple[Any, int]]:
        """The topics that it wants: their ids, and how many partitions they have."""
        found = {}
        for name in self.topics:
            topic = await found_topic(self.client, self.chance, name)
            if topic is not None:
                found[name] = topic.id, len(topic.leaders)
        return found

    def _heard(self, sent_us: int) -> None:
        self.heard_us, self.heard_by = sent_us, self._coordinator

    def _beats(self) -> bool:
        """Whether to send a heartbeat before the next commit: now and then it comes after it."""
        silent_us = self.client.process.world.now_us - self.heard_us
        return silent_us > 1_000_000 or self.chance.random() < 0.7

    def _is_late(self, sent_us: int) -> bool:
        """Whether the group may have gone on without it before the answer came."""
        return self.client.process.world.now_us - sent_us > SESSION_MS * 1000 * CLOCKS / 2

    # -- what it has ----------------------------------------------------------------------------

    def take(self, places: Sequence[Place]) -> bool:
        """Read these, unless it has slept for so long that they may be somebody else's by now."""
        if self._is_late(self.heard_us):
            return False
        for place in places:
            if place not in self.owned:
                self.ledger.take(self, place)
                self.owned[place] = -1  # it asks where the group is
                self.places.add(place)
        return True

    def give(self, places: Sequence[Place]) -> None:
        for place in places:
            if self.owned.pop(place, None) is not None:
                self.client.process.world.note(self, f"gives {place.name}-{place.number}")

    async def read_and_commit(self, member_epoch: int, knows_epochs: bool) -> Code:
        """Go on with what it has, and say how far it has come; the code of what fails."""
        for place, position in list(self.owned.items()):
            if position < 0:
                position = await self._committed(place, member_epoch if knows_epochs else -1)
                if position < 0:
                    continue
                if place in self.owned:
                    self.owned[place] = position
            await self._read(place)
        said = {place: at for place, at in self.owned.items() if at >= 0}
        if not said or self.chance.random() < 0.3:
            return Code.NONE
        floors = {place: self.ledger.floor(place) for place in said}
        code = await self.ask(requests.commit, self.member_id, member_epoch, said, knows_epochs)
        if code is Code.NONE:
            for place, at in said.items():
                self.ledger.committed(place, at, floors[place])
        return Code.NONE if code is None else code

    async def _committed(self, place: Place, epoch: int) -> int:
        floor = self.ledger.floor(place)
        partition = TopicPartition(place.name, place.number)
        member_id = self.member_id if epoch >= 0 else None
        found = await self.ask(requests.fetch_offsets, [partition], member_id, epoch)
        if not isinstance(found, tuple) or found[0] is not Code.NONE:
            return -1
        offsets: Mapping[TopicPartition, Committed] = found[1]
        known = self.books.topics.get(place.topic_id)
        offset = offsets[partition].offset if partition in offsets else 0
        if known is None or not known.is_doomed:
            self.ledger.told(place, offset, floor)
        return offset

    async def _read(self, place: Place) -> None:
        topic = await found_topic(self.client, self.chance, place.name)
        if topic is None or topic.id != place.topic_id or place.number >= len(topic.leaders):
            return
        position = self.owned.get(place, -1)
        leader, partition = topic.leaders[place.number], Partition(*place[1:])
        known = self.books.end_of(partition), self.books.start_of(partition)
        try:
            found: requests.Fetched = await self.client.ask(
                leader, requests.fetch, place.name, place.number, position, 512
            )
        except RefusedError as error:
            if error.code is Code.OFFSET_OUT_OF_RANGE and place in self.owned:
                self.owned[place] = max(position, 0)
            return
        except LostError:
            return
        if found.topic_id == place.topic_id:
            told = found.start, found.end, found.records
            self.books.read(partition, position, *told, *(known if found.is_end_known else (0, 0)))
        if found.records and self.owned.get(place) == position:
            self.owned[place] = found.records[-1].offset + 1


class ClassicMember(Member):
    """A member by JoinGroup and SyncGroup, which gives up all that it has in each rebalance."""

    generation = -1
    _shared_sizes: dict[str, tuple[Any, int]] | None = None  # what it has shared out as leader

    async def work(self) -> None:
        while not self.client.is_over:
            await self.client.sleep(0.05 + self.chance.expovariate(10.0))
            if not await self._join():
                continue
            while not self.client.is_over:
                await self.client.sleep(_BEAT_SECONDS * (0.5 + self.chance.random()))
                if not await self._live():
                    break
            self.give(list(self.owned))
        self.give(list(self.owned))
        if self.member_id:
            await self.ask(requests.leave, [Leaving(self.member_id, None)])

    def _forget(self) -> None:
        self.member_id, self.generation = "", -1
        self.give(list(self.owned))

    async def _join(self) -> bool:
        sent_us = self.client.process.world.now_us
        join = Join(
            *(self.member_id, None, "client", "/127.0.0.1", "consumer"),
            *(protocols("range", topics=self.topics), SESSION_MS, REBALANCE_MS),
        )
        joined = await self.ask(requests.join, join, seconds=15.0)
        if joined is None or isinstance(joined, Code):
            return False
        if joined.code is Code.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.code is not Code.NONE:
            self._refused(joined.code)
            return False
        self.member_id, self.generation = joined.member_id, joined.generation
        assignments: dict[str, bytes] = {}
        self._shared_sizes = None
        if joined.members and not joined.skip_assignment:
            assignments = await self._shared([each.member_id for each in joined.members])
        sync = Sync(self.member_id, None, self.generation, assignments, "consumer", "range")
        sent_us = self.client.process.world.now_us
        synced = await self.ask(requests.sync, sync, seconds=15.0)
        if synced is None or isinstance(synced, Code) or self._is_late(sent_us):
            return False
        if synced.code is not Code.NONE:
            self._refused(synced.code)
            return False
        self._heard(sent_us)
        given = json.loads(synced.assignment)
        return self.take([Place(name, UUID(topic), number) for name, topic, number in given])

    async def _shared(self, member_ids: list[str]) -> dict[str, bytes]:
        places = []
        self._shared_sizes = await self._sizes()
        for name, (topic_id, count) in self._shared_sizes.items():
            places += [(name, topic_id.hex, number) for number in range(count)]
        return {
            each: json.dumps(places[turn :: len(member_ids)]).encode()
            for turn, each in enumerate(sorted(member_ids))
        }

    def _refused(self, code: Code) -> None:
        if code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        elif code is not Code.REBALANCE_IN_PROGRESS:
            self._forget()

    async def _live(self) -> bool:
        """Send a heartbeat, read and commit; whether it is still in its generation."""
        code: Any = Code.NONE
        if self._beats():  # a consumer's heartbeats come from another thread
            sent_us = self.client.process.world.now_us
            code = await self.ask(requests.heartbeat, self.member_id, None, self.generation)
            if code is Code.NONE:
                self._heard(sent_us)
        if code is Code.NONE:
            code = await self.read_and_commit(self.generation, False)
            if self._shared_sizes is not None and self.chance.random() < 0.2:
                return await self._sizes() == self._shared_sizes  # else the leader shares anew
        if code in _FENCED:
            self._forget()
            return False
        return code is not Code.REBALANCE_IN_PROGRESS


class ConsumerMember(Member):
    """A member by ConsumerGroupHeartbeat, which keeps what it isn't told to give up."""

    epoch = 0
    _says_all = True
    _told: frozenset[TopicIdPartition] | None = None
    _lives = 0

    async def work(self) -> None:
        self._names: dict[Any, str] = {}
        self._begin_anew()
        while not self.client.is_over:
            await self.client.sleep(_BEAT_SECONDS * (0.5 + self.chance.random()))
            if self.epoch == 0 or self._beats():
                await self._beat()
            if self.epoch > 0:
                code = await self.read_and_commit(self.epoch, True)
                if code in _FENCED and code is not Code.STALE_MEMBER_EPOCH:
                    self._begin_anew()
        self.give(list(self.owned))
        await self.ask(requests.consumer_heartbeat, ConsumerHeartbeat(self.member_id, -1), _no)

    def _begin_anew(self) -> None:
        self.give(list(self.owned))
        self._lives += 1
        self.member_id = f"{self.client.name}.{self._lives}"
        self.epoch, self._says_all, self._told = 0, True, None
        self.is_revoking = False

    def _owned_ids(self) -> frozenset[TopicIdPartition]:
        return frozenset(TopicIdPartition(each.topic_id, each.number) for each in self.owned)

    async def _beat(self) -> None:
        owned = self._owned_ids()
        beat = ConsumerHeartbeat(self.member_id, self.epoch)
        if self._says_all or self.epoch == 0:
            beat = beat._replace(rebalance_timeout_ms=REBALANCE_MS, topics=self.topics, owned=owned)
        elif owned != self._told:
            beat = beat._replace(owned=owned)
        self._says_all = True  # unless an answer comes
        sent_us = self.client.process.world.now_us
        beaten = await self.ask(requests.consumer_heartbeat, beat, _no)
        if beaten is None or self._is_late(sent_us):
            return
        if isinstance(beaten, Code):
            if beaten in _FENCED or beaten is Code.GROUP_ID_NOT_FOUND:
                self._begin_anew()
            return
        self._heard(sent_us)
        self._says_all = self.is_revoking = False
        if beat.owned is not None:
            self._told = beat.owned
        if beaten.member_epoch < self.epoch:
            self.ledger.world.fail(f"{self}: its epoch goes back, {self.epoch} to {beaten}")
        self.epoch = beaten.member_epoch
        if beaten.assignment is not None:
            await self._use(beaten.assignment)

    async def _use(self, assignment: frozenset[TopicIdPartition]) -> None:
        gone = [
            each
            for each in self.owned
            if TopicIdPartition(each.topic_id, each.number) not in assignment
        ]
        self.give(gone)
        self.is_revoking = bool(gone)
        names = self._names
        if any(each.topic_id not in names for each in assignment):
            names.update({topic_id: name for name, (topic_id, _) in (await self._sizes()).items()})
            self._says_all = True  # and so is told again, should it still not know it
        new = [
            Place(names[each.topic_id], each.topic_id, each.partition)
            for each in sorted(assignment)
            if each.topic_id in names
        ]
        self._says_all |= not self.take(new)


async def _no(regex: str) -> tuple[str, ...]:
    """No member subscribes by a regular expression."""
    raise AssertionError(regex)
