"""What a cluster has of ACLs and quotas is in force on a broker, and in its file."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, log_lines
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.requested import RequestedChanges
from hermes.config.requested import Requested, with_acls
from hermes.errors import StorageError
from hermes.security import CLUSTER, INTERNAL, Operation
from hermes.security.acls import Acl
from hermes.storage import FileLayer
from hermes.storage.requested_file import read_requested

READ = Acl(2, "clicks", 3, "User:alice", "*", 3, 3)
SOME = Requested(frozenset({READ}))
OTHERS = Requested(frozenset({READ._replace(name="pages")}))


class Coordination:
    """The one node, and who follows it."""

    def __init__(self, follower: RequestedChanges) -> None:
        self.value = b""
        self._follower = follower
        follower.do_in_cluster = self.do

    def change_value(self, path: str, change: Callable[[bytes], bytes]) -> None:
        self.value = change(self.value)

    async def do(self, change: Callable[[Any], Any]) -> Any:
        change(self)
        self._follower.use(self.value)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path, access=[{"principal": "admin", "operations": ["all"]}])
    yield bench
    bench.close()


def kept(bench: BrokerBench) -> Requested:
    return Requested.decode(read_requested(bench.directory.path, FileLayer()) or b"")


def changed(bench: BrokerBench, acl: Acl) -> None:
    done = Deferred.fromCoroutine(bench.cluster.requested.change(with_acls([acl])))
    bench.turns()
    assert done.called


def test_what_the_cluster_has_is_in_force_and_kept(bench: BrokerBench) -> None:
    requested = bench.cluster.requested
    for each in (SOME, OTHERS):
        requested.use(each.encode())
        bench.turns()
        assert requested.now == kept(bench) == each
    assert bench.settings.config.rules is not None
    assert len(bench.settings.config.rules) == 2


def test_a_change_is_in_force_and_kept_once_it_is_answered(bench: BrokerBench) -> None:
    changed(bench, READ)
    assert bench.cluster.requested.now == kept(bench) == SOME
    coordination = Coordination(bench.cluster.requested)
    coordination.value = OTHERS.encode()
    changed(bench, READ)
    both = Requested(SOME.acls | OTHERS.acls)
    assert bench.cluster.requested.now == kept(bench) == both
    assert Requested.decode(coordination.value) == both


def test_a_cluster_that_never_had_any_gets_those_of_the_broker(bench: BrokerBench) -> None:
    changed(bench, READ)
    coordination = Coordination(bench.cluster.requested)
    bench.cluster.requested.use(b"")
    bench.turns()
    assert Requested.decode(coordination.value) == bench.cluster.requested.now == SOME
    none = Requested().encode()  # where all were deleted
    bench.cluster.requested.use(none)
    bench.turns()
    assert bench.cluster.requested.now == kept(bench) == Requested()


def test_what_can_not_be_kept_or_read_is_said(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageError("the disk is full")

    requested, tries = bench.cluster.requested, list[None]()
    requested.try_later = lambda: tries.append(None)
    with log_lines() as lines:
        with monkeypatch.context() as patched:
            patched.setattr("hermes.cluster.cluster_value.write_requested", fails)
            requested.use(SOME.encode())
            bench.turns()
        assert requested.now == SOME
        assert len(tries) == 1
        assert any("can't be taken: the disk is full" in line for line in lines)
        requested.use(SOME.encode())
        bench.turns()
        assert kept(bench) == SOME
        requested.use(b'{"later": 1}')
        bench.turns()
        assert requested.now == kept(bench) == SOME
        assert any("/hermes/kafka/requested: " in line and "delete it" in line for line in lines)
        assert len(tries) == 1  # it is for somebody to mend


def test_what_damage_in_coordination_leads_to_is_undone_by_deleting_it(bench: BrokerBench) -> None:
    changed(bench, READ)
    coordination = Coordination(bench.cluster.requested)
    for damaged in (b"[" * 100_000, b'{"acls": [[2, "", 3, "User:a", "*", 3, 3]], "quotas": {}}'):
        coordination.value = damaged
        bench.cluster.requested.use(damaged)
        bench.turns()
        refused = Deferred.fromCoroutine(bench.cluster.requested.change(with_acls([])))
        errors: list[Failure] = []
        refused.addErrback(errors.append)
        (error,) = errors
        assert re.search("requested: .*can't be read.*delete it", error.getErrorMessage())
        assert (coordination.value, bench.cluster.requested.now) == (damaged, SOME)
        coordination.value = b""
        bench.cluster.requested.use(b"")
        bench.turns()
        assert Requested.decode(coordination.value) == bench.cluster.requested.now == SOME


def test_at_the_start_coordination_comes_before_the_file(bench: BrokerBench) -> None:
    requested = bench.cluster.requested
    changed(bench, READ)
    requested.begin(OTHERS.encode())
    assert requested.now == OTHERS
    for found in (b"", None):  # it lost what it had; it can't be looked at
        requested.begin(found)
        assert requested.now == SOME
    with log_lines() as lines:
        requested.begin(b'{"later": 1}')
    assert requested.now == SOME
    assert any("of the cluster can't be taken" in line for line in lines)


def test_nothing_is_allowed_before_it_is_known_what_is_denied(bench: BrokerBench) -> None:
    authorization, asked = bench.shared.authorization, ("admin", Operation.ADMIN, CLUSTER)
    for found in (None, b'{"later": 1}'):
        bench.cluster.requested.begin(b"")
        assert authorization.may(*asked)
        bench.cluster.requested.begin(found)
        assert not authorization.may(*asked)
        assert authorization.may(INTERNAL, *asked[1:])
    bench.cluster.requested.use(b"")  # coordination is there, and has none
    bench.turns()
    assert authorization.may(*asked)
    bench.cluster.requested.begin(None)  # which is known from now on
    assert authorization.may(*asked)
