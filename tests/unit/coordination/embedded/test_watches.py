"""Tables of watches, without connections."""

from hermes.coordination.embedded.jute_records import EventType
from hermes.coordination.embedded.watches import Watches


def test_each_watch_fires_once_in_the_order_of_setting() -> None:
    watches: Watches[str] = Watches()
    for watcher in ("two", "one", "two"):
        watches.data.add("/a", watcher)
    assert len(watches) == 2
    changed = EventType.DATA_CHANGED
    assert list(watches.fire(changed, "/a")) == [("two", changed, "/a"), ("one", changed, "/a")]
    assert list(watches.fire(changed, "/a")) == []
    assert len(watches) == 0


def test_one_deletion_is_told_once_to_whoever_watches_both() -> None:
    watches: Watches[str] = Watches()
    watches.data.add("/p/a", "both")
    watches.children.add("/p/a", "both")
    watches.children.add("/p/a", "children")
    watches.children.add("/p", "above")
    assert list(watches.fire(EventType.DELETED, "/p/a")) == [
        ("both", EventType.DELETED, "/p/a"),
        ("children", EventType.DELETED, "/p/a"),
        ("above", EventType.CHILDREN_CHANGED, "/p"),
    ]


def test_a_watcher_that_is_gone_is_forgotten_altogether() -> None:
    watches: Watches[str] = Watches()
    for watcher in ("gone", "stays"):
        watches.data.add("/a", watcher)
        watches.children.add("/", watcher)
    watches.data.add("/b", "gone")
    watches.forget("gone")
    assert len(watches) == 2
    fired = list(watches.fire(EventType.CREATED, "/a"))
    assert [watcher for watcher, _, _ in fired] == ["stays", "stays"]
    assert list(watches.fire(EventType.CREATED, "/b")) == []
    assert vars(watches.data) == vars(Watches().data)
