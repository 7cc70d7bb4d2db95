"""What somebody who may not see everything is shown: nothing of the rest, in no list and no sum."""

import dataclasses

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console.audit_views import AuditView
from hermes.console.charts import Chart
from hermes.console.cluster_client import BrokerState
from hermes.console.cluster_sampler import ClusterView, TopicRow
from hermes.console.group_views import GroupView, Lag, LagRow, MemberRow, TopicLag
from hermes.console.page_request import NoSuchPageError, PagePermission, PageRequest
from hermes.console.pages import _ROUTES, _check
from hermes.console.viewer import ANYBODY, NotAllowedError, Viewer
from hermes.console.visibility import (
    visible_audit,
    visible_cluster,
    visible_group,
    visible_lags,
)
from hermes.errors import UnknownTopicError
from hermes.protocol import BrokerMetadata, PartitionMetadata, TopicMetadata
from hermes.security import CLUSTER, AccessRule, AccessRules, Operation

CHART = Chart("written", "Written", "1", "", "", "", "", ())


def viewer(*rules, name="alice"):
    found = AccessRules(
        AccessRule(name, frozenset(map(Operation, operations)), **where)
        for operations, where in rules
    )
    return Viewer(name, lambda who, what, on: found.decide(who, frozenset(), what, on).allowed)


CLICKS = viewer((["describe"], {"topic": "clicks"}))
ALL = viewer((["describe"], {}))


def metadata(*topics):
    parts = (PartitionMetadata(0, 0, 100, 100),)
    found = tuple(TopicMetadata(name, 1, 0, parts) for name in topics)
    fields = {each.name for each in dataclasses.fields(BrokerMetadata)}
    values = {"broker_id": 0, "version": "1", "topics": found}
    return BrokerMetadata(**values, **dict.fromkeys(fields - values.keys(), 0))


@pytest.fixture
def cluster():
    rows = {name: TopicRow(name, 1, 100, 5.0, 1) for name in ("clicks", "secret")}
    broker = BrokerState(0, BrokerAddress("h", 1), metadata("clicks", "secret"))
    return ClusterView(1.0, (broker,), rows, 10.0, (CHART,), ("a fault at /secret",), 2000)


def test_who_may_see_everything_sees_everything(cluster):
    assert visible_cluster(cluster, ANYBODY) == cluster
    assert visible_cluster(cluster, ALL) == cluster


def test_hidden_topics_are_in_no_list_and_no_sum(cluster):
    seen = visible_cluster(cluster, CLICKS)
    assert list(seen.topics) == ["clicks"]
    assert (seen.size_bytes, seen.partitions, seen.rate) == (100, 1, 5.0)
    assert [each.topic for each in seen.brokers[0].metadata.topics] == ["clicks"]
    assert seen.brokers[0].size_bytes == 100
    assert (seen.charts, seen.faults) == ((), ())
    assert "secret" not in repr(seen)
    assert list(cluster.topics) == ["clicks", "secret"]  # a copy


def group():
    return GroupView(
        "g",
        (
            MemberRow("m1", "clicks, secret", 2, frozenset({"clicks", "secret"})),
            MemberRow("m2", "clicks", 0, frozenset({"clicks"})),
            MemberRow("m3", "sec.*", 0, frozenset(), True),
        ),
        (
            LagRow("clicks", "0-0", 5, 0, 10, "m1-0", "m1"),
            LagRow("secret", "0-0", 5, 0, 1000, "m1-1", "m1"),
        ),
        (CHART,),
        ("secret 0-1: what is that?",),
    )  # fmt: skip


def test_a_group_shows_the_topics_that_may_be_seen():
    seen = visible_group(group(), CLICKS)
    assert [row.topic for row in seen.rows] == ["clicks"]
    assert (seen.lag.text, seen.charts, seen.faults) == ("5 B", (), ())
    assert [each.owns for each in seen.members] == [1, 0, 0]
    assert seen.members[1].wants == "clicks"
    assert "sec" not in repr(seen.rows) + "".join(each.wants for each in seen.members)
    assert visible_group(group(), ALL) == group()
    assert visible_group(group(), ANYBODY) == group()


def test_a_lag_says_of_how_many_partitions_it_is_not_known():
    def lag(*rows):
        found = GroupView("g", (), rows, (), ()).lag
        return found.text, found.note

    known, unknown = LagRow("a", "0-0", 5, 0, 10, ""), LagRow("a", "1-0", 5, None, None, "")
    beyond, new = LagRow("a", "2-0", 50, 0, 10, ""), LagRow("a", "3-0", None, 0, 10, "m")
    records = LagRow("b", "0-0", 5, 0, 12, "", counts_messages=True)
    none = "–"  # noqa: RUF001
    assert lag() == ("0 B", "")
    assert lag(known) == ("5 B", "")
    assert lag(known, records) == ("5 B and 7 messages", "")
    assert lag(known, unknown) == ("5 B", "unknown in 1 of 2 partitions")
    assert lag(known, unknown, beyond) == ("5 B", "unknown in 2 of 3 partitions")
    assert lag(unknown) == (none, "unknown")
    assert lag(new) == (none, "nothing committed")
    assert lag(new, unknown, known) == (
        "5 B",
        "nothing committed in 1 of 3 partitions, unknown in 1 of 3 partitions",
    )


def test_lags_of_topics_add_up_to_those_of_a_group():
    bytes_lag, messages_lag = Lag({False: 5}, 2, 1, 0), Lag({True: 7}, 1, 0, 1)
    assert bytes_lag + messages_lag + bytes_lag == Lag({False: 10, True: 7}, 5, 2, 1)
    assert sorted([messages_lag, bytes_lag], key=lambda each: each.order)[-1] is messages_lag


def test_groups_of_a_topic():
    lags = [TopicLag(name, Lag({False: 5}, 1)) for name in "ab"]
    assert visible_lags(lags, viewer((["describe"], {"group": "b"}))) == lags[1:]


def test_every_page_says_what_it_needs():
    """So that a new one can't forget it: these are all that look after themselves."""
    own = {route.pattern for route in _ROUTES if route.needs is PagePermission.OWN_CHOICE}
    names = ("theme", "topics", "create-topic", "groups", "audit", "dead-letters")
    assert own == {(), *((each,) for each in names)}
    for route in _ROUTES:
        assert route.acts or route.method == "GET", "what changes something says so"
        if route.needs in (PagePermission.TOPIC, PagePermission.MESSAGES, PagePermission.PRODUCING):
            assert route.pattern[:2] == ("topics", "*")
        assert (route.needs is PagePermission.SCHEMAS) == (route.pattern[:1] == ("schemas",))
        if route.needs in (PagePermission.GROUP, PagePermission.MOVING):
            assert route.pattern[:2] == ("groups", "*")
    messages = {r.pattern[2:] for r in _ROUTES if r.needs is PagePermission.MESSAGES}
    names = ("messages", "download", "message", "raw", "live", "tail", "redrive")
    assert messages == {(each,) for each in names}


def test_what_may_not_be_described_is_not_there():
    for needs in (PagePermission.TOPIC, PagePermission.MESSAGES):
        with pytest.raises(UnknownTopicError, match="secret"):
            _check(needs, CLICKS, "secret")
    for needs in (PagePermission.GROUP, PagePermission.MOVING):
        with pytest.raises(NoSuchPageError, match="no group g"):
            _check(needs, CLICKS, "g")
    with pytest.raises(NotAllowedError, match="'alice' may not consume from topic 'clicks'"):
        _check(PagePermission.MESSAGES, CLICKS, "clicks")
    with pytest.raises(NotAllowedError, match="'alice' may not see schemas"):
        _check(PagePermission.SCHEMAS, CLICKS)
    with pytest.raises(NotAllowedError, match="'alice' may not describe the cluster"):
        _check(PagePermission.CLUSTER, CLICKS)
    with pytest.raises(NotAllowedError, match="'alice' may not change the offsets of group 'g'"):
        _check(PagePermission.MOVING, ALL, "g")
    _check(PagePermission.MESSAGES, viewer((["consume"], {"topic": "clicks"})), "clicks")
    _check(PagePermission.MOVING, viewer((["group"], {"group": "g"})), "g")
    assert not ALL.administers
    assert ALL.may(Operation.DESCRIBE, CLUSTER)


def test_messages_end_when_the_right_or_the_session_does():
    allowed = {"right": True, "session": True}
    who = Viewer("alice", lambda *_: allowed["right"], lambda: allowed["session"])
    for what in allowed:
        found = who.seeing("clicks", iter(range(10)))
        assert next(found) == 0
        allowed[what] = False
        assert list(found) == []
        allowed[what] = True


def test_a_request_without_more_is_anybodys():
    assert PageRequest("GET", ()).viewer is ANYBODY


def test_the_audit_names_no_hidden_topic():
    removed = (("broker", "clicks", 3), ("broker", "secret", 4))
    view = AuditView((), (), 0, (), (), removed, ("a topic secret can't be read",), False)
    seen = visible_audit(view, CLICKS)
    assert seen.removed == (("broker", "clicks", 3),)
    assert "secret" not in repr(seen)
    assert visible_audit(view, ALL) == visible_audit(view, ANYBODY) == view
