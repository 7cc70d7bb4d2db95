"""The simulator's own rules: who is killed does nothing more, and a reactor never waits."""

import pytest
from coordination import Coordination, SimulatedSession
from disks import Disk
from machines import Machine, Process
from network import Network
from simulated_threading import SimulatedEvent, SimulatedLock, simulated_threads
from world import World

from hermes.errors import CoordinationUnavailableError


def a_process(world: World, name: str = "one") -> Process:
    return Machine(world, name).start()


def in_a_world(world: World, seconds: float = 10.0) -> None:
    world.run(world.now_us + int(seconds * 1e6))


def test_what_a_killed_process_was_about_to_do_is_not_done() -> None:
    world, done = World(1), []
    process = a_process(world)
    process.clock.callLater(2.0, done.append, "timer")
    process.in_thread(lambda: (process.wait(2_000_000, "a disk"), done.append("thread")))
    process.at(2_000_000, done.append, "event")
    world.at(1_000_000, process.kill)
    in_a_world(world)
    process.later(done.append, "later")
    in_a_world(world)
    assert done == []
    assert world.broken is None


def test_a_killed_process_leaves_no_thread_behind() -> None:
    world, ends = World(1), []
    process = a_process(world)

    def work() -> None:
        try:
            process.wait(5_000_000, "a disk")
        finally:
            ends.append("ended")

    process.thread("one", work)
    world.at(1_000_000, process.kill)
    in_a_world(world)
    assert ends == ["ended"]
    assert not process.threads


def test_a_paused_process_does_it_later_and_in_order() -> None:
    world, done = World(1), []
    process = a_process(world)
    for number in range(3):
        process.at(1000 * number, done.append, number)
    process.pause()
    world.run(1_000_000)
    assert done == []
    process.resume()
    world.run(1_000_000)
    assert done == [0, 1, 2]


def test_a_clock_drifts() -> None:
    world, fired = World(1), []
    process = Machine(world, "fast", rate=2.0).start()
    began = process.clock.seconds()
    process.clock.callLater(2.0, lambda: fired.append(world.now_us))
    in_a_world(world)
    assert fired == [pytest.approx(1_000_000, abs=2)]
    assert process.clock.seconds() - began == pytest.approx(20.0)


@pytest.mark.parametrize("what", ["disk", "coordination", "event", "lock"])
def test_a_reactor_that_would_wait_is_told(what: str) -> None:
    world = World(1)
    process = a_process(world)
    coordination = Coordination(world, Network(world))
    with simulated_threads(world):
        files = Disk(process.machine).mount(process)
        session = coordination.session(process)
        lock = SimulatedLock()

        def hold() -> None:
            with lock:
                process.wait(5_000_000, "nothing")

        process.thread("holder", hold)
        calls = {
            "disk": lambda: files.fsync_directory("/data"),
            "coordination": session.start,
            "event": SimulatedEvent().wait,
            "lock": lock.acquire,
        }
        process.at(1_000_000, calls[what])
        in_a_world(world)
        assert world.broken is not None
        assert "the reactor waits for" in world.broken


def test_a_lock_is_for_one_thread_at_a_time() -> None:
    world, inside, most = World(3), 0, 0
    process = a_process(world)
    with simulated_threads(world):
        lock = SimulatedLock()

        def work() -> None:
            nonlocal inside, most
            for _ in range(20):
                with lock:
                    inside += 1
                    most = max(most, inside)
                    process.wait(100, "a disk")
                    inside -= 1

        for number in range(5):
            process.thread(str(number), work)
        in_a_world(world)
        assert not process.threads
    assert most == 1
    assert world.broken is None


def test_what_fails_unseen_breaks_the_run() -> None:
    world = World(1)
    a_process(world).thread("one", lambda: 1 // 0)
    in_a_world(world)
    assert "ZeroDivisionError" in (world.broken or "")


class TestDisks:
    def test_what_is_written_during_a_sync_is_not_certain(self) -> None:
        world = World(1)
        machine = Machine(world, "one")
        disk, process = Disk(machine), machine.start()
        files = disk.mount(process)

        def write() -> None:
            descriptor = files.open_new("/data/file")
            files.pwrite(descriptor, b"early", 0)
            process.at(1, files.pwrite, descriptor, b"late!", 5)
            files.fdatasync(descriptor)
            files.fsync_directory("/data")

        process.thread("one", write)
        in_a_world(world)
        process.kill()
        found = disk.files.after_power_loss(None)
        assert found.pread(found.open_read("/data/file"), 100, 0) == b"early"

    def test_a_sync_that_was_cut_short_puts_nothing_on_the_disk(self) -> None:
        world = World(1)
        machine = Machine(world, "one")
        disk, process = Disk(machine), machine.start()
        disk.slowness = 1e5
        files = disk.mount(process)

        def write() -> None:
            files.open_new("/data/file")
            files.fsync_directory("/data")

        process.thread("one", write)
        world.at(1000, process.kill)
        in_a_world(world, 100)
        assert disk.files.after_power_loss(None).listdir("/data") == []

    def test_the_dead_write_nothing(self) -> None:
        world = World(1)
        machine = Machine(world, "one")
        disk, process = Disk(machine), machine.start()
        files = disk.mount(process)
        descriptor = files.open_new("/data/file")
        process.kill()
        for call in (
            lambda: files.pwrite(descriptor, b"x", 0),
            lambda: files.open_new("/data/other"),
            lambda: files.unlink("/data/file"),
        ):
            with pytest.raises(OSError):
                call()
        assert disk.files.listdir("/data") == ["file"]

    def test_a_full_disk_takes_nothing_and_gives_what_it_has(self) -> None:
        world = World(1)
        machine = Machine(world, "one")
        disk, process = Disk(machine), machine.start()
        files = disk.mount(process)
        descriptor = files.open_new("/data/file")
        files.pwrite(descriptor, b"there", 0)
        disk.is_full = True
        with pytest.raises(OSError, match="No space"):
            files.pwrite(descriptor, b"more", 5)
        assert files.pread(descriptor, 100, 0) == b"there"


class TestCoordination:
    def run(self, seed: int, lost: float) -> tuple[list[str], dict[str, bytes]]:
        """Make ten nodes, whose calls may be lost: what was told, and what is there."""
        world, told = World(seed), []
        coordination = Coordination(world, Network(world), lost=lost)
        process = a_process(world)
        session = coordination.session(process)

        def work() -> None:
            session.start()
            for number in range(10):
                try:
                    told.append("made" if session.create(f"/n{number}", b"x") else "was there")
                except CoordinationUnavailableError:
                    told.append("unknown")

        process.thread("one", work)
        in_a_world(world, 100)
        assert world.broken is None
        return told, coordination.nodes("/")

    def test_a_call_without_an_answer_is_done_or_not(self) -> None:
        outcomes = set()
        for seed in range(20):
            told, nodes = self.run(seed, 0.3)
            for number, what in enumerate(told):
                outcomes.add((what, f"/n{number}" in nodes))
        assert outcomes == {("made", True), ("unknown", True), ("unknown", False)}

    def with_session(self, *, lagging: float = 0.0) -> tuple[World, Coordination, SimulatedSession]:
        world = World(1)
        coordination = Coordination(world, Network(world), lagging=lagging)
        process = a_process(world)
        session = coordination.session(process)
        process.thread("start", session.start)
        in_a_world(world, 1)
        return world, coordination, session

    def test_a_session_ends_with_its_process_and_takes_its_nodes_with_it(self) -> None:
        world, coordination, session = self.with_session()
        session.process.thread("one", lambda: session.create_ephemeral("/e", b"x"))
        in_a_world(world, 1)
        session.process.kill()
        in_a_world(world, 5)
        assert "/e" in coordination.nodes("/")
        in_a_world(world, 3)
        assert "/e" not in coordination.nodes("/")

    def test_who_is_cut_off_for_long_has_another_session_afterwards(self) -> None:
        world, coordination, session = self.with_session()
        machine, first = session.process.machine, session.session_id
        coordination.network.cut(machine, coordination.machine)
        in_a_world(world, 5)
        assert session.session_id is None
        coordination.network.heal(machine, coordination.machine)
        in_a_world(world, 1)
        assert session.session_id == first
        coordination.network.cut(machine, coordination.machine)
        in_a_world(world, 10)
        coordination.network.heal(machine, coordination.machine)
        in_a_world(world, 1)
        assert session.session_id not in (None, first)

    def test_what_others_wrote_may_be_seen_late_but_not_after_a_sync(self) -> None:
        world, coordination, session = self.with_session(lagging=1.0)
        other = coordination.session(a_process(world, "other"))
        seen = []

        def write() -> None:
            other.start()
            other.create("/n", b"x")

        def read() -> None:
            seen.append(session.get("/n"))
            session.sync("/n")
            seen.append(session.get("/n"))

        other.process.thread("write", write)
        in_a_world(world, 1)
        session.process.thread("read", read)
        in_a_world(world, 1)
        assert seen[0] is None
        assert seen[1] is not None


class TestNetwork:
    def test_a_connection_keeps_the_order_whatever_is_cut_meanwhile(self) -> None:
        world, got = World(5), []
        network = Network(world, late=0.5)
        client, server = a_process(world, "client"), a_process(world, "server")
        connection = network.connect(client, server.machine)
        assert connection is not None
        for number in range(50):
            client.at(number * 10_000, connection.to_server, got.append, number)
        world.at(100_000, network.cut, client.machine, server.machine)
        world.at(2_000_000, network.heal, client.machine, server.machine)
        in_a_world(world)
        assert got == list(range(50))

    def test_both_ends_hear_of_a_loss(self) -> None:
        world, told = World(5), []
        network = Network(world)
        client, server = a_process(world, "client"), a_process(world, "server")
        connection = network.connect(client, server.machine, lambda: told.append("client"))
        assert connection is not None
        connection.on_lost_at_server = lambda: told.append("server")
        world.at(1000, connection.lose)
        in_a_world(world)
        connection.to_server(told.append, "never")
        in_a_world(world)
        assert sorted(told) == ["client", "server"]

    def test_a_cut_is_in_one_direction(self) -> None:
        world, got = World(5), []
        network = Network(world)
        one, other = a_process(world, "one"), a_process(world, "other")
        network.cut(one.machine, other.machine)
        assert not network.send(one, other.machine, got.append, "there")
        assert network.send(other, one.machine, got.append, "back")
        in_a_world(world)
        assert got == ["back"]
