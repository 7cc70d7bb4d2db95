"""What pages show of a real broker, without HTTP: a request in, an answer out."""

import html
import json
import re
import time
from contextlib import ExitStack
from html.parser import HTMLParser

import pytest

from hermes.client import SimpleConsumer
from hermes.config.addresses import BrokerAddress
from hermes.console import Access, ClusterClient, Console, RegistryRecords
from hermes.console.page_request import PageRequest, PageResponse
from hermes.coordination.group_state import read_group
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import encode_message_set
from hermes.testing import running_broker

from .conftest import HOSTILE_GROUP, HOSTILE_PAYLOADS, MANY

SESSION = "s" * 43


class Pages:
    """A console, asked for pages directly."""

    def __init__(self, broker, records=None, **settings):
        self.may_act = False
        self.access = Access(None)
        cluster = ClusterClient(BrokerAddress(broker.host, broker.port), **settings)
        self.console = Console(cluster, self.access, lambda: self.may_act, records)

    def answer(self, *path, **query):
        cookies = {"hermes_session": SESSION}
        query = {name.rstrip("_"): str(value) for name, value in query.items()}
        return self.console.answer(PageRequest("GET", path, query, cookies=cookies, here="/here"))

    def __call__(self, *path, **query):
        answer = self.answer(*path, **query)
        assert answer.status == 200, body(answer)
        return body(answer)

    def post(self, *path, kind="", **form):
        """Send a form to an address; its parameter `kind` is the only one that any has."""
        form["csrf"] = self.access.token(SESSION)
        cookies = {"hermes_session": SESSION}
        query = {"kind": kind} if kind else {}
        return self.console.answer(PageRequest("POST", path, query, form, cookies))


def body(answer: PageResponse) -> str:
    pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
    return b"".join(pieces).decode()


def text(page: str) -> str:
    """What is to be read on a page, with single spaces."""
    main = page.partition("<main")[2].replace("<wbr>", "")
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


@pytest.fixture(scope="module")
def pages(prepared):
    made = Pages(prepared.broker)
    yield made
    made.console.close()


@pytest.fixture
def acting(pages):
    pages.may_act = True
    yield pages
    pages.may_act = False


def test_all_is_not_well_over_known_damage(tmp_path):
    """What a recovery meets is known within a moment of the start."""
    good = encode_message_set([b"good"])
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.kafka").write_bytes(good + good[:-1] + b"?" + good)
    with running_broker(tmp_path) as broker, ExitStack() as stack:
        pages = Pages(broker)
        stack.callback(pages.console.close)
        damage = f"damaged at offsets {len(good)} to {2 * len(good)}"
        with SimpleConsumer(broker.host, broker.port) as consumer:
            until = time.monotonic() + 60
            while not consumer.describe_partitions("t")[0].damage:
                assert time.monotonic() < until
                time.sleep(0.05)
        while f"Broken t partition 0: {damage}" not in (page := text(pages())):
            assert time.monotonic() < until, page
            time.sleep(0.05)
        assert "All is well" not in page
        assert f"0 damaged {damage}" in text(pages("topics", "t"))


def test_the_overview_counts_what_there_is(pages):
    page = text(pages())
    assert f"Topics {MANY + 7}" in page
    assert f"Partitions {MANY + 9}" in page
    assert "Brokers 1" in page
    assert "Groups 6" in page


def test_rates_are_known_at_the_first_look(prepared):
    never = "–"  # noqa: RUF001
    for path, shown in (
        ((), "Written per second 0 B/s"),
        (("topics", "many-119"), "Written 0 B/s"),
    ):
        first = Pages(prepared.broker)
        page = text(first(*path))
        first.console.close()
        assert shown in page
        assert f"Written {never}" not in page


def test_the_overview_says_what_needs_attention(pages):
    seen = ""
    while "beyond the end" not in seen:  # groups are looked at a few at a time
        seen = text(pages())
    assert "Group beyond: hostile partition 0: the offset is beyond the end" in seen


def test_mirrors_show_what_they_do_and_what_is_wrong(pages):
    page = pages("mirrors")
    assert "<b>" not in page
    assert "<script>" not in page.partition("<main")[2]
    shown = text(page)
    assert "2.0 KiB/s, 250.0 KiB behind, 1,234,567 messages" in shown
    assert "mirror gone: no process runs" in shown
    assert "mirror west: <e>: </pre><script>2" in shown
    assert "mirror west: <s>/loop is refused: it would make a loop" in shown
    assert "200 of 3,000 partitions" in shown
    assert "<b> <i>t 0-0 <script>1" in shown
    assert "mirror gone: no process runs" in text(pages())


def test_topics_are_searched_sorted_and_paged(pages):
    assert "many-000" in pages("topics")
    assert "Page 2 of 3" in text(pages("topics", page=2))
    found = pages("topics", q="MANY-11", sort="size")
    names = re.findall(r'href="/topics/(many-\d+)"', found)
    assert names == [f"many-{number}" for number in range(119, 109, -1)]
    assert "No topic" in text(pages("topics", q="<b>nothing"))


def test_a_topic_shows_its_partitions_settings_and_groups(pages):
    page = ""
    while "billing" not in page:
        page = text(pages("topics", "activity"))
    for number in range(3):
        assert f" {number} 0 " in page
    assert "0-0 is 0" in page
    assert "retention_time 30d broker.yaml, topics" in page
    assert "Segments First append Last append" in page
    assert re.search(r" 0 0 [\d,]+ .{1,12} [\d.]+ KiB 1 2\d{3}-\d\d-\d\d", page)


def test_the_last_messages_are_the_first_ones_shown(pages):
    shown = text(pages("topics", "activity", "messages", partition="0-1", count=20))
    offsets = [int(each) for each in re.findall(r" 1:(\d+)", shown)]
    assert len(offsets) == 20
    assert offsets == sorted(offsets, reverse=True)
    assert '{"user": {"id": 199}, "page": "/p/1"}' in shown
    assert "20 shown" in shown
    assert "hermes consume -b 127.0.0.1:" in shown
    assert "-t activity -p 1 -o -20 -e" in shown


def test_all_partitions_are_merged(pages):
    shown = text(pages("topics", "activity", "messages", count=500, scan=1000))
    assert len(set(re.findall(r" (\d:\d+)", shown))) >= 500


def test_messages_from_the_beginning_an_offset_and_a_time(pages):
    first = text(
        pages("topics", "activity", "messages", partition="0-0", start="beginning", count=20)
    )
    assert '"id": 0}' in first
    assert '"id": 19}' in first
    assert '"id": 20}' not in first
    offsets = re.findall(r" 0:(\d+)", first)
    inside = int(offsets[3]) + 5  # within a message: that one
    page = pages(
        "topics", "activity", "messages", partition="0-0", start="offset", value=inside, count=20
    )
    assert re.findall(r" 0:(\d+)", text(page))[0] == offsets[3]
    later = text(pages("topics", "activity", "messages", start="time", value="2999-01-01"))
    assert "There is no message here" in later
    for moment in ({"value": "2001-01-01 10:00"}, {"at": "2001-01-01T10:00"}):
        earlier = pages("topics", "activity", "messages", start="time", **moment)
        assert '"id": 0}' in text(earlier)
        assert re.search(r'type="datetime-local"[^>]* value="2001-01-01T10:00(:00)?"', earlier)
    zoned = pages("topics", "activity", "messages", start="time", value="2001-01-01T10:00+02:00")
    assert 'value="2001-01-01T08:00:00"' in zoned


def test_messages_are_found_by_text_and_by_a_field(pages):
    found = text(pages("topics", "activity", "messages", q='"id": 77}', start="beginning"))
    assert "3 shown" in found
    found = text(pages("topics", "activity", "messages", field="user.id", q="77", start="last"))
    assert "3 shown" in found
    none = text(pages("topics", "activity", "messages", field="user.id", q="1000"))
    assert "Nothing among these messages is like that" in none


def test_a_search_stops_at_its_limit_and_says_so(pages):
    shown = pages("topics", "activity", "messages", q="nowhere", start="beginning", scan=50)
    assert "0 shown, 50 looked at; there is more" in text(shown)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "nowhere"},
        {"start": "offset", "value": "x"},
        {"start": "time", "value": "yesterday"},
        {"start": "time", "at": "yesterday"},
        {"key": "only Kafka's format has them"},
        {"count": "1000000"},
        {"as": "yaml"},
        {"as": "avro"},
        {"as": "avro", "schema": "{"},
    ],
)
def test_wrong_input_is_answered_with_what_would_be_right(pages, wrong):
    answer = pages.answer("topics", "activity", "messages", **wrong)
    assert answer.status == 400
    assert 'role="alert"' in body(answer)


def test_a_compressed_set_is_shown_as_such(pages):
    page = text(pages("topics", "compressed", "messages"))
    assert "gzip 1/3 first" in page
    assert "gzip 3/3 third" in page
    one = text(pages("topics", "compressed", "message", partition="0-0", offset=0, index=2))
    assert "Stored gzip" in one
    assert one.endswith("third ← Before this After this →")


def test_a_damaged_message_is_shown_as_damaged(pages, prepared):
    for start in ("beginning", "last"):
        page = text(pages("topics", "damaged", "messages", start=start))
        order = [
            page.index(each)
            for each in ("good one", f" 0:{prepared.damaged_offset} damaged", "good again")
        ]
        assert order == sorted(order, reverse=start == "last")
        assert "2 shown, 2 looked at" in page
        assert f" 0:{prepared.damaged_offset} damaged" in page
        assert "readable again from" in page
        assert "good one" in page
        assert "good again" in page


def test_values_are_shown_in_the_format_asked_for(pages):
    shown = text(pages("topics", "packed", "messages", as_="msgpack"))
    assert '{"user": 7}' in shown
    assert "81 a4 75" in text(pages("topics", "packed", "messages", as_="hex"))
    schema = json.dumps({"type": "record", "name": "r", "fields": []})
    assert "Shown as hex" in text(pages("topics", "packed", "messages", as_="avro", schema=schema))


class Tags(HTMLParser):
    """The tags and attributes of a page, as a browser would see them."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def assert_harmless(page):
    tags = Tags(page).found
    assert [each for tag, each in tags if tag == "script"] == [
        each for tag, each in tags if tag == "script" and each["src"].startswith("/static/")
    ]
    assert {tag for tag, _ in tags}.isdisjoint({"img", "b", "iframe", "style", "object"})
    for _, attributes in tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            assert not (attributes.get(name) or "").lower().startswith(("javascript:", "data:"))
    assert not re.search("[\u202a-\u202e\u200b\x1b\x07]", page)
    keys = [attributes["data-live"] for _, attributes in tags if "data-live" in attributes]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("how", ["auto", "text", "json", "hex", "msgpack"])
def test_hostile_payloads_are_text(pages, how):
    page = pages("topics", "hostile", "messages", as_=how, q="")
    assert_harmless(page)
    if how == "text":
        assert HOSTILE_PAYLOADS[0].decode() in text(page) or "alert(document.domain)" in page


def test_hostile_input_is_text(pages):
    for query in ({"q": "<script>x</script>"}, {"field": '"><img>'}):
        assert_harmless(body(pages.answer("topics", "hostile", "messages", **query)))
    assert_harmless(pages("topics", q='"><script>alert(1)</script>'))
    assert_harmless(body(pages.answer("topics", "<script>alert(1)</script>")))
    assert_harmless(body(pages.answer("<script>")))


def test_hostile_names_of_groups_are_text(acting):
    assert_harmless(acting("groups"))
    page = acting("groups", HOSTILE_GROUP)
    assert_harmless(page)
    assert HOSTILE_GROUP in text(page)
    assert_harmless(acting("groups", HOSTILE_GROUP, "reset", to="latest"))
    assert_harmless(acting("topics", "hostile"))
    assert_harmless(acting())


def test_a_download_has_whole_payloads_one_per_line(pages):
    answer = pages.answer("topics", "hostile", "download", start="beginning")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="hostile.ndjson"'
    lines = [json.loads(line) for line in body(answer).splitlines()]
    assert [each.get("payload", "").encode() for each in lines[:4]] == list(HOSTILE_PAYLOADS[:4])
    assert bytes.fromhex(lines[4]["payload_hex"]) == HOSTILE_PAYLOADS[4]


def test_a_payload_is_only_ever_a_file(pages):
    answer = pages.answer("topics", "hostile", "raw", partition="0-0", offset=0)
    assert answer.body == HOSTILE_PAYLOADS[0]
    assert answer.content_type == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")


def test_a_tail_gives_what_is_new_and_says_from_where_to_go_on(pages):
    new = pages("topics", "activity", "tail", at="0-0:0,0-1:999999", partition="")
    places = dict(each.split(":") for each in re.search('data-at="([^"]*)"', new)[1].split(","))
    assert set(places) == {"0-0", "0-1", "0-2"}
    assert new.count("<details") == 100
    again = pages("topics", "activity", "tail", at=re.search('data-at="([^"]*)"', new)[1])
    assert "<details" not in again


def test_groups_show_members_owners_and_lag(pages):
    listed = text(known(pages))
    assert "active active 1" in listed
    assert re.search(r"billing no members 0 [\d.]+ KiB", listed)
    assert "beyond no members 0 – unknown" in listed  # noqa: RUF001
    seen = ""
    while "active_" not in seen.partition("Members")[0] and seen.count("active_") < 4:
        seen = text(pages("groups", "active"))  # until it owns its partitions
    assert "activity (1 stream)" in seen
    billing = text(pages("groups", "billing"))
    assert re.search(r"activity 0 0 [\d,]+ [\d.]+ KiB", billing)
    assert "nobody" in billing
    assert pages.answer("groups", "none").status == 404
    assert pages.answer("groups", "a/b").status == 404


def test_schemas_are_listed_shown_and_compared(pages, prepared):
    with_registry = Pages(prepared.broker, RegistryRecords(f"{prepared.broker.http}/registry"))
    try:
        listed = with_registry("schemas")
        assert_harmless(listed)
        assert 'href="/schemas/activity-value"' in listed
        assert "activity-value" not in text(with_registry("schemas", q="nothing"))
        page = with_registry("schemas", "activity-value")
        assert_harmless(page)
        assert "Version 2 2 versions in all Id 2 Type AVRO Compatibility BACKWARD" in text(page)
        assert '{ "name": "page",' in text(page)
        assert '"page"' not in text(with_registry("schemas", "activity-value", version=1))
        compared = text(with_registry("schemas", "activity-value", against=1))
        assert '+ "name": "page",' in compared
        same = with_registry("schemas", "activity-value", version=1, against=1)
        assert "They are the same" in text(same)
        referring = with_registry("schemas", HOSTILE_GROUP)
        assert_harmless(referring)
        assert 'href="/schemas/activity-value?version=2"' in referring
        for path, query in (("nothing", {}), ("activity-value", {"version": 9})):
            assert with_registry.answer("schemas", path, **query).status == 404
        assert 'href="/schemas"' in listed
    finally:
        with_registry.console.close()
    assert 'href="/schemas"' not in pages()
    assert pages.answer("schemas").status == 404


def known(pages, **query):
    """The list of groups, once all of them were looked at: a page does that for a moment only."""
    page = pages("groups", **query)
    while "being read" in page or "yet to be looked at" in page:
        page = pages("groups", **query)
    return page


def test_groups_are_searched_and_sorted(pages):
    def names(**query):
        return re.findall(r'<th scope="row"><a[^>]*>([^<]*)', known(pages, **query))

    every = names()
    assert every == sorted(every)
    assert names(sort="name", order="desc") == every[::-1]
    assert names(q="BILL") == ["billing"]
    by_lag = names(sort="lag")
    assert by_lag.index("billing") < by_lag.index("beyond")
    by_lag = names(sort="lag", order="asc")
    assert by_lag.index("billing") > by_lag.index("beyond")
    assert names(sort="members")[0] == "active"
    assert names(sort="state", order="asc")[-1] == "active"


def offset_of(prepared, group, partition):
    session = Session(prepared.broker.zookeeper_connect)
    session.start()
    try:
        return read_group(session, group).offsets["activity", BrokerPartition(0, partition)]
    finally:
        session.stop()


def test_offsets_are_moved_after_a_preview_and_exactly_as_it_said(acting, prepared):
    assert "Continue elsewhere" in acting("groups", "movable")
    page = acting("groups", "movable", "reset", topic="activity", to="latest")
    assert "activity 0 0 " in text(page)
    assert offset_of(prepared, "movable", 0) == 0
    changes = html.unescape(re.search('name="changes" value="([^"]*)"', page)[1])
    answer = acting.post("groups", "movable", "reset", changes=changes)
    assert (answer.status, answer.headers["Location"]) == (
        303,
        "/groups/movable?kind=hermes&done=moved",
    )
    moved = offset_of(prepared, "movable", 0)
    assert moved > 1000
    # The same form once more: the offsets are no longer what it has shown.
    assert acting.post("groups", "movable", "reset", changes=changes).status == 502
    back = acting("groups", "movable", "reset", to="shift", value="-30")
    then = json.loads(html.unescape(re.search('name="changes" value="([^"]*)"', back)[1]))[0][3]
    assert moved - 80 < then <= moved - 30  # where a message starts
    assert "Nothing is changed yet" in text(back)


def test_a_group_with_members_is_left_alone(acting):
    page = acting("groups", "active")
    assert "can be changed when it has no members" in text(page)
    assert acting.answer("groups", "active", "reset", to="earliest").status == 400
    assert acting.post("groups", "active", "reset", changes="[]").status == 400


def test_nothing_can_be_changed_without_permission(pages, prepared):
    assert "Continue elsewhere" not in pages("groups", "billing")
    before = offset_of(prepared, "billing", 1)
    changes = json.dumps([["activity", "0-1", before, 0]])
    assert pages.post("groups", "billing", "reset", changes=changes).status == 403
    assert offset_of(prepared, "billing", 1) == before


def test_brokers_show_their_settings_and_their_log(pages):
    assert "0 answers 127.0.0.1" in text(pages("brokers"))
    page = text(pages("brokers", "0"))
    assert "num_partitions" in page
    assert "is ready: Hermes" in page
    assert "is ready: Hermes" not in text(pages("brokers", "0", level="error"))
    assert pages.answer("brokers", "7").status == 404
    assert pages.answer("brokers", "0", level="loud").status == 400


def test_colours_are_remembered_in_a_cookie(pages):
    answer = pages.answer("theme", to="dark", back="/topics")
    assert (answer.headers["Location"], answer.cookies["hermes_theme"]) == ("/topics", "dark")
    dark = pages.console.answer(PageRequest("GET", (), cookies={"hermes_theme": "dark"}))
    assert 'data-theme="dark"' in body(dark)
    assert (
        "data-theme"
        not in body(
            pages.console.answer(PageRequest("GET", (), cookies={"hermes_theme": '"><script>'}))
        ).partition("<head>")[0]
    )
