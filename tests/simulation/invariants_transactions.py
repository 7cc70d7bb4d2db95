"""What producers know of their transactions, and what readers of what was committed must get.

A transaction is read whole or not at all, with the offset that it commits; what was acknowledged
as committed is read, and nothing whose commit nobody has asked for. What one reader got at an
offset every later one gets: so the last stable offset never passes what is open.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from invariants_today import Books, Partition

from hermes.protocol.records import Record

__all__ = ["Attempt", "TransactionBooks"]


class Attempt:
    """One transaction, as its producer knows it.

    Attributes:
        number: of all those of its transactional id, in the order in which they were begun; it is
            the offset that it commits, where `has_offset`.
        name: the producer's, in its messages; sent: how many these are.
        commits_asked: how often a commit was sent.
        is_committed: None as long as nobody knows.
        shown, hidden: where readers of what was committed have got it, and where not.
    """

    def __init__(self, transactional_id: str, number: int) -> None:
        self.number = number
        self.name = f"{transactional_id}.{number}"
        self.has_offset = False
        self.sent = 0
        self.commits_asked = 0
        self.is_committed: bool | None = None
        self.shown: set[tuple[Partition, int]] = set()
        self.hidden: set[tuple[Partition, int]] = set()

    def __str__(self) -> str:
        known = {None: "perhaps committed", True: "committed", False: "aborted"}[self.is_committed]
        return f"{self.name} ({known}, asked for {self.commits_asked} times)"


class _Id:
    """Attributes:
    floor: the largest offset that is known to be committed.
    given: who was told to be a producer id with an epoch.
    last: the largest of these, and since when somebody has known of it.
    """

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.floor = 0
        self.given: dict[tuple[int, int], str] = {}
        self.last, self.since_us = (-1, -1), 0


class TransactionBooks:
    """All that was told of transactions. What doesn't hold breaks the run.

    Attributes:
        committed, aborted: how many were acknowledged so.
    """

    def __init__(self, books: Books) -> None:
        self.books, self.world = books, books.world
        self.committed = self.aborted = 0
        self._ids: dict[str, _Id] = defaultdict(_Id)
        self._attempts: dict[str, Attempt] = {}
        self._ends: dict[Partition, int] = defaultdict(int)
        self._got: dict[Partition, dict[int, bytes | None]] = defaultdict(dict)
        books.counts = self._counts

    # -- producers ------------------------------------------------------------------------------

    def initialized(self, transactional_id: str, life: str, producer_id: int, epoch: int) -> None:
        """A producer was told who it is; those before it with its transactional id are fenced."""
        known, producer = self._ids[transactional_id], (producer_id, epoch)
        for each in self._ids.values():
            whose = each.given.get(producer, life)
            if whose != life:
                self.world.fail(f"{life} and {whose} both are producer {producer}")
        known.given[producer] = life
        if producer > known.last:
            known.last, known.since_us = producer, self.world.now_us

    def check_life(self, transactional_id: str, life: str, sent_us: int, what: str) -> None:
        """Something of a producer's was taken, which it sent then."""
        known = self._ids[transactional_id]
        last = known.given[known.last]
        if last != life and sent_us > known.since_us:
            self.world.fail(f"{what} of {life} is taken, which {last} has fenced")

    def begin(self, transactional_id: str) -> Attempt:
        attempts = self._ids[transactional_id].attempts
        made = attempts[len(attempts) + 1] = Attempt(transactional_id, len(attempts) + 1)
        self._attempts[made.name] = made
        return made

    def ended(self, transactional_id: str, attempt: Attempt, *, commits: bool) -> None:
        """It was acknowledged that it is committed, or aborted."""
        attempt.is_committed = commits
        self.committed += commits
        self.aborted += not commits
        known = self._ids[transactional_id]
        if commits and attempt.has_offset:
            known.floor = max(known.floor, attempt.number)

    # -- what was committed ---------------------------------------------------------------------

    def end_of(self, partition: Partition) -> int:
        """The largest last stable offset that anybody was told."""
        return self._ends[partition]

    def read(
        self,
        partition: Partition,
        begin: int,
        covered: int,
        stable_end: int,
        records: Iterable[Record],
        known_end: int,
    ) -> None:
        """Somebody has read what was committed, from `begin` to `covered`.

        `known_end`: what `end_of` said when that was asked.
        """
        world, topic = self.world, self.books.topics[partition.topic_id]
        what = f"{topic.name}-{partition.number}"
        if stable_end < known_end:
            world.fail(f"{what} is stable up to {stable_end}, and has been up to {known_end}")
        if begin < covered and covered > stable_end:
            world.fail(f"{what} is shown up to {covered}, and is stable up to {stable_end}")
        self._ends[partition] = max(self._ends[partition], stable_end)
        found: dict[int, bytes] = {}
        for each in records:
            assert each.value is not None
            found[each.offset] = each.value
            self.books.note(partition, each.offset, each.key, each.value)
            self._shown(partition, each.offset, each.value)
        got = self._got[partition]
        for offset in range(begin, covered):
            value = found.get(offset)
            before = got.setdefault(offset, value)
            if before != value and not topic.is_compacted:  # of that copies keep more or less
                world.fail(f"{what}: at {offset} {before!r} was committed, and now {value!r}")

    def _shown(self, partition: Partition, offset: int, value: bytes) -> None:
        attempt = self._of(value)
        if attempt is None:
            return
        attempt.shown.add((partition, offset))
        if not attempt.commits_asked or attempt.is_committed is False:
            self.world.fail(f"{partition} shows {value!r} at {offset}: {attempt}")

    def _of(self, value: bytes) -> Attempt | None:
        return self._attempts.get(value.decode().split("/")[2])

    def _counts(self, value: bytes) -> bool | None:
        """Whether a message counts for who reads what was committed; None where nobody knows."""
        attempt = self._of(value)
        if attempt is None or attempt.is_committed or attempt.shown:
            return True
        return None if attempt.is_committed is None and attempt.commits_asked else False

    # -- offsets --------------------------------------------------------------------------------

    def floor(self, transactional_id: str) -> int:
        """The offset that was committed for certain by now: who asks is told no less."""
        return self._ids[transactional_id].floor

    def told(self, transactional_id: str, offset: int, floor: int) -> None:
        """Somebody was told which offset is committed, once none was about to be."""
        if offset < floor:
            self.world.fail(f"{transactional_id} is told to be at {offset}; committed was {floor}")
        attempt = self._ids[transactional_id].attempts.get(offset)
        if attempt is not None and (not attempt.commits_asked or attempt.is_committed is False):
            self.world.fail(f"{transactional_id} is told to be at {offset}: {attempt}")

    # -- at the end -----------------------------------------------------------------------------

    def check_end(self, offsets: Mapping[str, int]) -> None:
        """Hold all against what was read; `offsets`: where each transactional id's group is."""
        for partition, got in self._got.items():
            self._check_got(partition, got)
        for attempt in self._attempts.values():
            self._check_attempt(attempt)
        for transactional_id, offset in offsets.items():
            self._check_offset(transactional_id, offset)

    def _check_got(self, partition: Partition, got: Mapping[int, bytes | None]) -> None:
        if self.books.topics[partition.topic_id].is_compacted:
            return  # what isn't there may have been replaced
        for offset, value in self.books.known(partition).items():
            if got.get(offset, value) is None:
                attempt = self._of(value)
                if attempt is None:
                    self.world.fail(f"{partition} hides {value!r} at {offset}")
                attempt.hidden.add((partition, offset))

    def _check_attempt(self, attempt: Attempt) -> None:
        if attempt.hidden and (attempt.is_committed or attempt.shown):
            shown, hidden = sorted(attempt.shown), sorted(attempt.hidden)
            self.world.fail(f"{attempt} is shown at {shown}, and is not at {hidden}")

    def _check_offset(self, transactional_id: str, offset: int) -> None:
        for number, attempt in self._ids[transactional_id].attempts.items():
            if not attempt.has_offset:
                continue
            if number > offset and (attempt.is_committed or attempt.shown):
                self.world.fail(f"{attempt}: its offset isn't committed; {offset} is")
            if number == offset and (attempt.is_committed is False or attempt.hidden):
                self.world.fail(f"{attempt}: its offset is committed, and it isn't")
