"""Who leads, by the node in coordination."""

from typing import Any

import pytest
from registry_cluster import until

from hermes.coordination.sessions import Session
from hermes.errors import CoordinationUnavailableError
from hermes.registry.election import Leader, NodeElection


def test_whoever_still_has_the_node_leads_again_after_a_failure(
    connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else can: the node stays for as long as the session does."""
    election = NodeElection(lambda: connect, Leader("one", "http://127.0.0.1:1/registry"))
    problems: list[str] = []
    election.start(lambda: True, lambda: problems.append(election.problem))
    try:
        until(lambda: election.is_leading, "a leader")
        failures = [CoordinationUnavailableError("ZooKeeper: lost for a moment")]
        get = Session.get

        def get_later(session: Session, *path: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return get(session, *path, **options)

        monkeypatch.setattr(Session, "get", get_later)
        election.recheck()
        until(lambda: any("lost for a moment" in each for each in problems), "the failure")
        until(lambda: election.is_leading, "a leader again")
        assert election.leader == Leader("one", "http://127.0.0.1:1/registry")
    finally:
        election.stop()
