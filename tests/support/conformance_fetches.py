"""Scenes of fetch sessions (KIP-227): what is said of partitions that were spoken of before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance_steps import NOWHERE, Scene, batch, produce
from kafka_raw import parts

__all__ = ["FETCH_DIFFERENCES", "FETCH_SCENES"]

#: What Hermes answers otherwise: see `DIFFERENCES`.
FETCH_DIFFERENCES = {
    ("sessions_ended", "one partition only"): "no session: it gains nothing by one",
    ("sessions_ended", "nothing asked for"): "no session: nothing is gained by one",
}


def in_sessions(scene: Scene) -> None:
    """One session from its beginning to its end, with news and without."""
    produce(scene, "filled", batch(b"one", b"two"))
    one = {0: 0, 1: 0}
    began = _ask(scene, "begun", one)
    number = began.session_id
    _ask(scene, "an epoch too far", {}, session=number, epoch=2)
    _ask(scene, "not asked on", {}, session=number, epoch=1)
    _ask(scene, "asked on from its end", {0: 2}, session=number, epoch=2)
    _ask(scene, "no news", {}, session=number, epoch=3)
    _ask(scene, "an epoch again", {}, session=number, epoch=3)
    produce(scene, "more in the other", batch(b"three"), partition=1)
    produce(scene, "more", batch(b"four"))
    _ask(scene, "news", {}, session=number, epoch=4)
    _ask(scene, "less than there is", {0: 2}, session=number, epoch=5, most=1)
    _ask(scene, "turned", {}, session=number, epoch=6)
    _ask(scene, "forgotten", {0: 3}, session=number, epoch=7, forgotten=[1])
    _ask(scene, "forgotten again", {}, session=number, epoch=8, forgotten=[1, 7])
    _ask(scene, "taken in again", {1: 1}, session=number, epoch=9)
    _ask(scene, "out of range", {0: 9}, session=number, epoch=10)
    _ask(scene, "still out of range", {}, session=number, epoch=11)
    _ask(scene, "in range again", {0: 3}, session=number, epoch=12)
    _ask(scene, "an unknown partition", {7: 0}, session=number, epoch=13)
    _ask(scene, "an unknown topic", {0: 0}, session=number, epoch=14, topic="nobody-has-this")
    _ask(scene, "without one", {}, session=number, epoch=15, forgotten=[7])
    other = {"topic": "nobody-has-this"}
    _ask(scene, "without the other", {}, session=number, epoch=16, forgotten=[0], **other)
    _cut(scene, 3)
    _ask(scene, "records deleted", {}, session=number, epoch=17)
    _ask(scene, "that is known now", {}, session=number, epoch=18)
    _ask(scene, "by id all at once", {0: 3}, session=number, epoch=19, topic=scene.topic_id())
    _ask(scene, "all forgotten", {}, session=number, epoch=19, forgotten=[0, 1])
    _ask(scene, "after all were forgotten", {}, session=number, epoch=20)


def sessions_ended(scene: Scene) -> None:
    """How a session ends, and what begins none."""
    produce(scene, "filled", batch(b"one"))
    both = {0: 0, 1: 0}
    number = _ask(scene, "begun", both).session_id
    _ask(scene, "ended", {}, session=number, epoch=-1)
    _ask(scene, "after it ended", {}, session=number, epoch=1)
    number = _ask(scene, "begun again", both).session_id
    other = _ask(scene, "begun anew", both, session=number).session_id
    _ask(scene, "the old one", {}, session=number, epoch=1)
    _ask(scene, "the new one", {0: 1}, session=other, epoch=1)
    _ask(scene, "none wanted", both, epoch=-1)
    _ask(scene, "in a version without sessions", both, version=6)
    _ask(scene, "nothing asked for", {})
    _ask(scene, "one partition only", {0: 0})
    _ask(scene, "by an unknown id", both, topic=NOWHERE)
    number = _ask(scene, "by id", both, topic=scene.topic_id()).session_id
    _ask(scene, "by name", {0: 1}, session=number, epoch=1)
    _ask(scene, "by id still", {0: 1}, session=number, epoch=1, topic=scene.topic_id())
    _ask(scene, "a negative epoch", {}, session=number, epoch=-7)
    _ask(scene, "the epoch after", {}, session=number, epoch=2, topic=scene.topic_id())


def _ask(
    scene: Scene,
    label: str,
    offsets: Mapping[int, int],
    *,
    session: int = 0,
    epoch: int = 0,
    forgotten: Sequence[int] = (),
    topic: Any = None,
    version: int = 0,
    most: int = 1 << 20,
) -> Any:
    """Ask for partitions from these offsets on; the answer says "a session" for its number."""
    topic = topic or scene.topic
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    version = version or (12 if isinstance(topic, str) else 17)
    make = parts("Fetch", version)
    wanted = tuple(
        make.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in offsets.items()
    )
    gone = make.ForgottenTopic(**named, partitions=tuple(forgotten)) if forgotten else None
    answer = scene.ask(
        label,
        "Fetch",
        version,
        max_wait=make.timeout(0),
        min_bytes=0,
        max_bytes=most,
        session_id=session,
        session_epoch=epoch,
        topics=(make.FetchTopic(**named, partitions=wanted),) if wanted else (),
        forgotten_topics_data=(gone,) if gone else (),
    )
    if answer is not None and version >= 7:
        scene.answers[label]["session"] = bool(answer.session_id)
    return answer


def _cut(scene: Scene, offset: int) -> None:
    make = parts("DeleteRecords", 2)
    wanted = make.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = (make.DeleteRecordsTopic(name=scene.topic, partitions=(wanted,)),)
    scene.ask("cut", "DeleteRecords", 2, topics=topics, timeout=make.timeout(30_000))


FETCH_SCENES: dict[str, Callable[[Scene], None]] = {
    each.__name__: each for each in (in_sessions, sessions_ended)
}
