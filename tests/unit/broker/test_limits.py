"""The budget of requests being received, and the rate of log lines."""

from hermes.broker.limits import READ_BYTES, TIGHT_READ_BYTES, RateLimit, RequestMemory


class FakeReader:
    def __init__(self) -> None:
        self.read_size = 0
        self.held = False
        self.given_up = ""

    def set_read_size(self, size_bytes: int) -> None:
        self.read_size = size_bytes

    def hold_reading(self, held: bool) -> None:
        self.held = held

    def give_up(self, reason: str) -> None:
        self.given_up = reason


def budget(limit: int, count: int) -> tuple[RequestMemory, list[FakeReader]]:
    memory = RequestMemory(limit)
    readers = [FakeReader() for _ in range(count)]
    for reader in readers:
        memory.add(reader)
    return memory, readers


def test_below_the_limit_everybody_reads_freely() -> None:
    memory, readers = budget(100, 3)
    for reader in readers:
        memory.update(reader, 33)
    assert memory.used_bytes == 99
    assert not memory.tight
    assert [reader.read_size for reader in readers] == [READ_BYTES] * 3
    assert not any(reader.held for reader in readers)


def test_above_the_limit_only_the_elder_goes_on() -> None:
    memory, (elder, second, idle) = budget(100, 3)
    memory.update(elder, 60)
    memory.update(second, 60)
    assert memory.tight
    assert (elder.held, second.held, idle.held) == (False, True, False)
    assert idle.read_size == TIGHT_READ_BYTES


def test_a_small_request_in_part_is_held_while_tight_and_let_go_when_the_elder_is_done() -> None:
    memory, (elder, second, late) = budget(100, 3)
    memory.update(elder, 60)
    memory.update(second, 45)
    memory.update(late, 10)
    assert late.held
    memory.update(elder, 0)
    assert not memory.tight
    assert not second.held
    assert not late.held
    assert late.read_size == READ_BYTES


def test_when_the_elder_leaves_and_it_stays_tight_the_next_one_reads() -> None:
    memory, (elder, second, third) = budget(100, 3)
    memory.update(elder, 60)
    memory.update(second, 60)
    memory.update(third, 60)
    memory.remove(elder)
    assert memory.tight
    assert not second.held
    assert second.read_size == READ_BYTES
    assert third.held


def test_an_elder_without_progress_is_given_up_at_the_second_look() -> None:
    memory, (elder, second) = budget(100, 2)
    memory.update(elder, 60)
    memory.update(second, 60)
    memory.evict_stalled()
    assert elder.given_up == ""
    memory.evict_stalled()
    assert "request_memory" in elder.given_up


def test_an_elder_with_progress_is_left_alone() -> None:
    memory, (elder, second) = budget(100, 2)
    memory.update(elder, 60)
    memory.update(second, 60)
    memory.evict_stalled()
    memory.update(elder, 61)
    memory.evict_stalled()
    assert elder.given_up == ""


def test_the_sum_is_right_after_everybody_left() -> None:
    memory, readers = budget(100, 4)
    for reader in readers:
        memory.update(reader, 70)
    for reader in readers:
        memory.remove(reader)
    assert memory.used_bytes == 0
    assert not memory.tight


def test_a_connection_made_while_tight_reads_little() -> None:
    memory, (elder, second) = budget(100, 2)
    memory.update(elder, 60)
    memory.update(second, 60)
    late = FakeReader()
    memory.add(late)
    assert late.read_size == TIGHT_READ_BYTES


def test_rate_limit_counts_what_it_suppressed() -> None:
    now = [0.0]
    rate = RateLimit(lambda: now[0], allowed=2, period=10.0)
    assert [rate.allow("a") for _ in range(5)] == [0, 0, None, None, None]
    assert rate.allow("b") == 0, "each kind has an allowance of its own"
    now[0] = 10.0
    assert rate.allow("a") == 3
    assert rate.allow("a") == 0
