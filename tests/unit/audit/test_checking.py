"""What an audit of several clusters reads when one of them can't be reached at first."""

import pytest

from hermes.audit import checking
from hermes.audit.checking import Audit, ClusterAddress
from hermes.errors import CoordinationUnavailableError


class Coordination:
    """Sessions with it; `away` has the places where nobody answers."""

    def __init__(self):
        self.away = set()
        self.read = []

    def session(self, connect, security):
        return Session(self, connect)


class Session:
    def __init__(self, coordination, connect):
        self.coordination, self.connect = coordination, connect

    def start(self):
        if self.connect in self.coordination.away:
            raise CoordinationUnavailableError(f"{self.connect} doesn't answer")

    def stop(self): ...


class Reader:
    unavailable = ()

    def __init__(self, session, *, since_ms, security):
        self.session = session

    def read(self):
        self.session.coordination.read.append(self.session.connect)
        return iter(())

    def close(self): ...


def test_a_cluster_that_could_not_be_reached_is_read_once_it_can(monkeypatch):
    coordination = Coordination()
    monkeypatch.setattr(checking, "Session", coordination.session)
    monkeypatch.setattr(checking, "EventReader", Reader)
    coordination.away.add("b:2181")
    with Audit([ClusterAddress(name, f"{name}:2181") for name in "abc"]) as audit:
        for _ in range(2):
            with pytest.raises(CoordinationUnavailableError):
                audit.look()
        assert coordination.read == []
        coordination.away.clear()
        audit.look()
    assert coordination.read == ["a:2181", "b:2181", "c:2181"]
