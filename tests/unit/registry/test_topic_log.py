"""What the registry's threads survive."""

import threading

from hermes.registry.election import Leader, NodeElection, NoElection
from hermes.registry.home import FixedHome, HomeBroker
from hermes.registry.replica import ReplicaPosition
from hermes.registry.topic_log import TopicLog


class FaultyHome(FixedHome):
    """Finding the home fails by a fault, and then finds none.

    Attributes:
        found: set by the second look.
    """

    def __init__(self) -> None:
        super().__init__(HomeBroker(-1, "localhost", 1))
        self.looks = 0
        self.found = threading.Event()

    def find(self) -> None:  # type: ignore[override]
        """See `HomeLocator`."""
        self.looks += 1
        if self.looks == 1:
            raise ZeroDivisionError("a fault")
        self.found.set()


class LostHome(FixedHome):
    """Coordination knows of none any more; remembers which one it was told to prefer."""

    remembered = -1

    def find(self) -> None:  # type: ignore[override]
        """See `HomeLocator`."""

    def remember(self, broker_id: int) -> None:
        self.remembered = broker_id


def test_where_events_were_read_from_stays_the_home_though_coordination_has_lost_it() -> None:
    homes = LostHome(HomeBroker(0, "localhost", 1))
    log = TopicLog(homes, NoElection())
    log.home = HomeBroker(7, "localhost", 7)  # it may be down now
    log.replica.mark = ReplicaPosition(100, 1, "first", 0)
    log._find()
    assert homes.remembered == 7


def test_a_fault_does_not_end_the_reading_of_the_topic() -> None:
    homes = FaultyHome()
    log = TopicLog(homes, NoElection())
    log.start()
    assert homes.found.wait(60)
    log.stop()
    assert log.is_readable


def test_a_fault_does_not_end_the_election() -> None:
    asked = threading.Event()
    connects = iter([None, ""])

    def connect() -> str | None:
        if next(connects, "") is None:
            raise RuntimeError("can't start new thread")
        asked.set()
        return None

    election = NodeElection(connect, Leader("", ""))
    election.start(lambda: False, election.recheck)
    assert asked.wait(60)
    election.stop()
    assert election.problem == "coordination is not there yet"
