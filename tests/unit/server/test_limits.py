"""The budget of requests being received, and the rate of log lines."""

import random

from hermes.server.limits import (
    LARGE_READ_BYTES,
    LEAST_PROGRESS_BYTES,
    LONGEST_WAITERS,
    OVER_BUDGET_READ_BYTES,
    READ_BYTES,
    SMALL_BYTES,
    RequestMemory,
)

MIB = 1 << 20


class FakeReader:
    """A connection that receives a request of `size` bytes, as far as it may and can."""

    def __init__(self, memory: RequestMemory, size: int = 100 * MIB, sends: int | None = None):
        self.memory = memory
        self.size = size
        self.sends = size if sends is None else sends  # how much of it the peer ever sends
        self.received = 0
        self.read_size = 0
        self.held = False
        self.given_up = ""
        self.done = False
        memory.add(self)

    def set_read_size(self, size_bytes: int) -> None:
        self.read_size = size_bytes

    def hold_reading(self, held: bool) -> None:
        self.held = held

    def has_input(self) -> bool:
        return self.received < self.sends

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self.memory.remove(self)

    def read(self) -> bool:
        """Read once, as the reactor would; whether anything came."""
        count = min(self.read_size, self.sends - self.received)
        if self.held or self.done or self.given_up or count <= 0:
            return False
        self.received += count
        if self.received == self.size:
            self.done = True
            self.memory.update(self, 0, 0)
        else:
            self.memory.update(self, self.received, self.size - self.received)
        return True


def run(readers: list[FakeReader], reads: int = 10**6) -> None:
    """Let everybody read until nobody can (or that often)."""
    chance = random.Random(1)
    while reads > 0 and sum(reader.read() for reader in chance.sample(readers, len(readers))):
        reads -= 1


def test_below_the_limit_everybody_reads_freely() -> None:
    memory = RequestMemory(MIB)
    readers = [FakeReader(memory, sends=300_000) for _ in range(3)]
    run(readers)
    assert memory.used_bytes == 900_000
    assert not memory.over_budget
    assert all(READ_BYTES <= reader.read_size <= LARGE_READ_BYTES for reader in readers)
    assert not any(reader.held for reader in readers)


def test_the_rest_of_a_large_request_is_read_with_few_calls() -> None:
    memory = RequestMemory(8 * MIB)
    reader = FakeReader(memory, size=5 * MIB // 2)
    sizes = []
    while True:
        sizes.append(reader.read_size)
        if not reader.read():
            break
    rest = reader.size - READ_BYTES - 2 * LARGE_READ_BYTES
    assert sizes == [READ_BYTES, LARGE_READ_BYTES, LARGE_READ_BYTES, rest, READ_BYTES]
    assert reader.done


def test_a_large_request_that_comes_when_the_budget_is_used_up_waits_for_no_sweep() -> None:
    memory = RequestMemory(MIB)
    waits = FakeReader(memory)  # with requests that have arrived, behind a response
    memory.update(waits, MIB + 1, 0)
    large = [FakeReader(memory, size=MIB) for _ in range(LONGEST_WAITERS + 2)]
    for reader in large:
        reader.read()
    assert memory.over_budget
    assert [reader.held for reader in large] == [False] * LONGEST_WAITERS + [True] * 2


def test_nothing_is_read_with_few_calls_while_the_budget_is_used_up() -> None:
    memory = RequestMemory(MIB)
    readers = [FakeReader(memory) for _ in range(40)]
    run(readers, reads=3)
    assert memory.over_budget
    late = FakeReader(memory)
    assert late.read_size == OVER_BUDGET_READ_BYTES
    late.read()
    assert late.read_size <= READ_BYTES


def test_a_thousand_claims_cost_the_budget_and_one_small_read_each() -> None:
    memory = RequestMemory(32 * MIB)
    readers = [FakeReader(memory, sends=200_000) for _ in range(1000)]
    run(readers)
    assert memory.over_budget
    assert memory.used_bytes < 1.25 * 32 * MIB + 1000 * OVER_BUDGET_READ_BYTES + 2 * READ_BYTES


def test_small_requests_go_on_while_large_ones_wait() -> None:
    memory = RequestMemory(8 * MIB)
    run([FakeReader(memory, sends=200_000) for _ in range(300)])
    assert memory.over_budget
    small = [FakeReader(memory, size=20_000) for _ in range(50)]
    run(small)
    assert all(reader.done for reader in small)


def test_small_claims_can_not_use_more_than_their_reserve() -> None:
    memory = RequestMemory(8 * MIB)
    run([FakeReader(memory, sends=200_000) for _ in range(300)])
    used = memory.used_bytes
    run([FakeReader(memory, size=SMALL_BYTES, sends=SMALL_BYTES - 1) for _ in range(2000)])
    assert memory.used_bytes - used < 2 * MIB + 2000 * OVER_BUDGET_READ_BYTES


def test_large_requests_all_arrive_in_the_end() -> None:
    memory = RequestMemory(8 * MIB)
    readers = [FakeReader(memory, size=3 * MIB) for _ in range(40)]
    run(readers)
    assert all(reader.done for reader in readers)
    assert memory.used_bytes == 0
    assert not memory.over_budget


def test_even_one_above_the_whole_budget() -> None:
    memory = RequestMemory(MIB)
    readers = [FakeReader(memory, size=20 * MIB), FakeReader(memory, size=20 * MIB)]
    run(readers)
    assert all(reader.done for reader in readers)


def test_those_who_claim_and_do_not_send_are_given_up_by_the_dozen() -> None:
    memory = RequestMemory(8 * MIB)
    stalled = [FakeReader(memory, sends=100_000) for _ in range(300)]
    run(stalled)
    honest = FakeReader(memory, size=5 * MIB)
    run([honest])
    assert not honest.done
    looks = 0
    while not honest.done:
        memory.sweep()
        run([*stalled, honest])
        looks += 1
    assert looks < 2 * len(stalled) / LONGEST_WAITERS + 4
    assert "request_memory" in stalled[0].given_up
    assert not honest.given_up


def test_an_elder_must_move() -> None:
    memory = RequestMemory(MIB)
    tricklers = [FakeReader(memory, sends=900_000) for _ in range(2)]
    run(tricklers)
    for reader in tricklers:
        reader.sends = reader.received + 10 * LEAST_PROGRESS_BYTES
    honest = FakeReader(memory, size=5 * MIB)
    for _ in range(4):
        memory.sweep()
        for reader in tricklers:
            if not reader.held and not reader.given_up:
                reader.received += 1
                memory.update(reader, reader.received, reader.size - reader.received)
    run([honest])
    assert honest.done
    assert all(reader.given_up for reader in tricklers)


def test_an_elder_with_progress_is_left_alone() -> None:
    memory = RequestMemory(MIB)
    readers = [FakeReader(memory, size=50 * MIB) for _ in range(2)]
    for _ in range(6):
        run(readers, reads=40)
        memory.sweep()
    assert not any(reader.given_up for reader in readers)


def test_who_streams_large_requests_goes_behind_those_who_wait() -> None:
    memory = RequestMemory(MIB)
    streaming = FakeReader(memory, size=10**9)
    memory.update(streaming, 200_000, 500_000)
    waiting = [FakeReader(memory, size=2 * MIB, sends=100_000) for _ in range(LONGEST_WAITERS + 3)]
    run(waiting)
    memory.update(streaming, 100_000, 900_000)  # the next request has begun with the same read
    assert memory.over_budget
    assert streaming.held
    for reader in waiting:
        reader.sends = reader.size
    run(waiting)
    assert all(reader.done for reader in waiting)


def test_while_checks_overrun_the_budget_nobody_adds_to_it() -> None:
    memory = RequestMemory(MIB)
    checked = FakeReader(memory)
    memory.update(checked, 5 * MIB, 0, 5 * MIB)
    waiting = FakeReader(memory, size=2 * MIB)
    run([waiting])
    assert waiting.received == OVER_BUDGET_READ_BYTES
    memory.sweep()
    memory.sweep()
    assert not waiting.given_up, "it has more to send; the wait is ours"
    assert not checked.given_up
    memory.update(checked, 0, 0)
    run([waiting])
    assert waiting.done


def test_the_sums_are_right_whatever_happens() -> None:
    chance = random.Random(7)
    memory = RequestMemory(2 * MIB)
    readers = [
        FakeReader(memory, size=chance.choice([5000, 60_000, MIB, 9 * MIB])) for _ in range(60)
    ]
    for reader in chance.sample(readers, 20):
        reader.sends = chance.randrange(reader.size)
    for _ in range(400):
        run(readers, reads=3)
        if chance.random() < 0.1:
            memory.sweep()
        if chance.random() < 0.1:
            memory.remove(chance.choice(readers))
        assert memory.used_bytes >= 0
        assert memory._reserved_bytes >= 0
        assert memory._checking_bytes == 0
    for reader in readers:
        memory.remove(reader)
    assert (memory.used_bytes, memory._reserved_bytes, memory.over_budget) == (0, 0, False)
