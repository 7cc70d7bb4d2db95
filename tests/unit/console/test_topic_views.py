from dataclasses import replace

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console.cluster_client import BrokerState
from hermes.console.cluster_sampler import ClusterView, TopicRow
from hermes.console.forms import format_places, parse_places
from hermes.console.group_sources import GroupPartition
from hermes.console.messages import SearchEnd
from hermes.console.page_request import InputError, PagePermission, PageRequest, PageRoute, redirect
from hermes.console.topic_views import PartitionRow, TopicView, is_numbered, topic_list
from hermes.coordination.layout import BrokerPartition
from hermes.protocol import BrokerMetadata


def cluster(*rows):
    return ClusterView(0.0, (), {row.name: row for row in rows}, None, (), (), 2000)


@pytest.fixture
def view():
    return cluster(
        TopicRow("alpha", 1, 300, None, 1),
        TopicRow("beta", 8, 100, 50.0, 1),
        TopicRow("Gamma", 4, 200, 9.0, 2),
    )


@pytest.mark.parametrize(
    ("sort", "order", "names"),
    [
        ("name", "", ["Gamma", "alpha", "beta"]),
        ("name", "desc", ["beta", "alpha", "Gamma"]),
        ("partitions", "", ["beta", "Gamma", "alpha"]),
        ("size", "", ["alpha", "Gamma", "beta"]),
        ("size", "asc", ["beta", "Gamma", "alpha"]),
        ("rate", "", ["beta", "Gamma", "alpha"]),
        ("nonsense", "nonsense", ["Gamma", "alpha", "beta"]),
    ],
)
def test_topics_are_sorted(view, sort, order, names):
    assert [row.name for row in topic_list(view, sort=sort, order=order).rows] == names


def test_topics_are_searched_by_part_of_their_name_in_any_case(view):
    found = topic_list(view, search=" GAM ")
    assert [row.name for row in found.rows] == ["Gamma"]
    assert (found.found, found.total) == (1, 3)


def test_a_thousand_topics_come_page_by_page():
    view = cluster(*(TopicRow(f"t{number:04d}", 1, number, 0.0, 1) for number in range(1000)))
    last = topic_list(view, page=99)
    assert (last.page, last.pages, len(last.rows)) == (20, 20, 50)
    assert last.rows[-1].name == "t0999"
    assert topic_list(view, page=2).rows[0].name == "t0050"
    assert topic_list(cluster()).pages == 1


def test_brokers_that_do_not_answer_are_counted(view):
    address = BrokerAddress("h", 9092)
    silent = BrokerState(2, address, None, "no connection")
    answering = BrokerState(1, address, BrokerMetadata(1, "", 0, 0, 1, (), ()))
    assert topic_list(replace(view, brokers=(answering, silent))).silent_brokers == 1


@pytest.mark.parametrize(
    ("holds_records", "brokers", "label"),
    [(False, 1, "2"), (True, 1, "2"), (True, 3, "2"), (False, 3, "1-2")],
)
def test_a_partition_is_called_by_its_number_where_that_names_it(holds_records, brokers, label):
    numbered = is_numbered(holds_records, brokers)
    row = PartitionRow(1, 2, 0, 0, 0, is_numbered=numbered)
    topic = TopicView("t", (row,), {})
    assert (row.label, row.name) == (label, "1-2")
    assert topic.partition(label) is topic.partition("1-2") is row
    assert topic.partition("3") is None
    own = GroupPartition("t", BrokerPartition(1, 2), "1-2", 0, "", "")
    assert own.label(numbered) == label
    kafkas = replace(own, number=5)  # of 0.7's format it has another number over all brokers
    assert kafkas.label(numbered) == ("2" if numbered else "5 (1-2)")
    assert replace(kafkas, place=None, name="5").label(numbered) == "5"


def test_places_of_a_tail_are_read_back():
    places = {"0-0": 12, "1-7": 0}
    assert parse_places(format_places(places)) == places
    assert parse_places("") == {}
    for wrong in ("0-0", "0-0:x", "0-0:1,", "0-0:" + "9" * 30):
        with pytest.raises(InputError):
            parse_places(wrong)


def test_parameters_are_checked():
    ask = PageRequest("GET", ("topics",), {"page": "2", "bad": "x", "q": "  text "})
    assert ask.number("page", 1) == 2
    assert ask.number("none", 7) == 7
    assert ask.text("q") == "text"
    for arguments in (("bad", 1), ("page", 1, 3), ("page", 1, 0, 1)):
        with pytest.raises(InputError):
            ask.number(*arguments)
    with pytest.raises(InputError):
        PageRequest("GET", (), {"q": "x" * 20_000}).text("q")


def test_a_route_passes_on_what_stands_for_a_star():
    route = PageRoute("GET", ("topics", "*", "live"), lambda: None, PagePermission.OWN_CHOICE)
    assert route.match(PageRequest("GET", ("topics", "clicks", "live"))) == ("clicks",)
    assert route.match(PageRequest("GET", ("topics", "clicks"))) is None
    assert route.match(PageRequest("POST", ("topics", "clicks", "live"))) is None


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/topics?q=a", "/topics?q=a"),
        ("//evil.example/", "/"),
        ("/\\evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("", "/"),
    ],
)
def test_a_redirect_never_leads_to_another_site(path, target):
    assert redirect(path).headers["Location"] == target


def test_kinds_of_results_are_told_apart_by_name():
    assert SearchEnd.kind == "end"
