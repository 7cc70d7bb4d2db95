"""Rules of replication, each with what breaks it, and within how many seeds that is found.

Some rules stand in for each other: broken alone none of 400 to 700 seeds needed them, and tests of
`tests/unit/replication` hold them. That only the registered life of a follower counts, and what a
former one had doesn't, matters where whose copy is lost doesn't begin an epoch, and the other way
round. That a fetch of another epoch isn't served: the epoch of its last batch is compared, too.
That a leader answers only while it is confirmed bounds how old an answer is, and never makes one
wrong. That a copy which can't be told to be the same before the leader's start begins anew: it
takes a deletion up to just where such a copy ends. That a copy which has nothing in common with who
leads after an unclean election begins anew, and that one which isn't whole leads when it is chosen:
both take several losses in the right order.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from schedule import MUTATIONS, Mutation

from hermes.coordination.replicas import ReplicaTree
from hermes.protocol import NOBODY
from hermes.protocol.record_batches import HEADER_BYTES, decode_header
from hermes.replication import following, moving, replica, state
from hermes.replication.electing import Electing
from hermes.replication.following import Cut, Following
from hermes.replication.leading import Leading
from hermes.replication.messages import Diverging, LogEnds, Records
from hermes.replication.moving import PreferredLeader
from hermes.replication.replica import Replica

_Patch = tuple[Any, str, Any]


def _mutation(name: str, seeds: int, rule: str, *patches: _Patch, scene: str = "replicas") -> None:
    @contextmanager
    def broken() -> Iterator[None]:
        with ExitStack() as stack:
            for where, what, instead in patches:
                stack.enter_context(patch.object(where, what, instead))
            yield

    MUTATIONS[name] = Mutation(rule, scene, seeds, broken)


# -- cuts, and what a fetch says ------------------------------------------------------------------

_fetch, _answered = Following.fetch, Following.answered


def _fetch_noting(self: Any, ends: LogEnds, last_epoch: int, high_watermark: int) -> Any:
    self.watermark = high_watermark
    return _fetch(self, ends, last_epoch, high_watermark)


def _cut_to_watermark(self: Any, token: int, answer: Any, ends: LogEnds, epochs: Any) -> Any:
    found = _answered(self, token, answer, ends, epochs)
    is_first = not hasattr(self, "has_answer")
    self.has_answer = True
    if is_first and isinstance(answer, Records) and ends.start <= self.watermark < ends.end:
        return Cut(self.watermark)
    return found


_mutation(
    "trunc_hw",
    20,
    "A follower cuts where histories part, never to its watermark",
    (Following, "fetch", _fetch_noting),
    (Following, "answered", _cut_to_watermark),
)


def _answered_hastily(self: Any, *rest: Any) -> Any:
    found = _answered(self, *rest)
    if isinstance(found, following.Append):
        self.written()
    return found


_mutation(
    "unflushed",
    10,
    "A follower fetches only when all that it has is on its disk",
    (Following, "answered", _answered_hastily),
    (
        Following,
        "fetch",
        lambda self, ends, *rest: _fetch(self, ends._replace(flushed_end=ends.end), *rest),
    ),
)


def _answered_twice(self: Any, token: int, answer: Any, ends: LogEnds, epochs: Any) -> Any:
    if isinstance(answer, Diverging):
        return self._parted(answer, ends, epochs)
    return _answered(self, token, answer, ends, epochs)


_mutation(
    "any_answer",
    300,
    "An answer counts once, for the fetch under way",
    (Following, "answered", _answered_twice),
)


def _answered_while_leading(self: Any, *rest: Any) -> Any:
    found = None if self.following is None else self.following.answered(*rest)
    if isinstance(found, Cut | following.Restart):
        self.following = None
    return found


_mutation(
    "cut_while_elected",
    150,
    "Who is cutting its log doesn't become leader",
    (Replica, "answered", _answered_while_leading),
)


def _unchecked(data: Any, end: int, last_epoch: int, epoch: int) -> Any:
    found, position = [], 0
    while len(data) - position >= HEADER_BYTES:
        header = decode_header(data, position)
        position += header.size_bytes
        if position <= len(data):
            found.append(header)
    return found


_mutation(
    "unchecked",
    100,
    "A follower checks every byte, and the order of what comes",
    (following, "check_batches", _unchecked),
)

# -- what a leader counts -------------------------------------------------------------------------

_mutation(
    "no_epoch_start",
    50,
    "A replica joins once it has what the epoch began with",
    (Leading, "_has_all_committed", lambda self, known: known.end >= self.high_watermark),
)


def _only_proposed(self: Any) -> Any:
    return self.state.isr if self._proposed is None else self._proposed


_mutation(
    "shrink_early",
    20,
    "Who is being taken out counts until that is certain",
    (Leading, "largest_isr", property(_only_proposed)),
)
_mutation(
    "expand_late",
    200,
    "Who is being taken in counts from then on",
    (Leading, "largest_isr", property(lambda self: self.state.isr)),
)
_mutation(
    "too_few",
    10,
    "Nothing is committed while too few replicas are in sync",
    (Leading, "has_enough", property(lambda self: True)),
)
_mutation(
    "end_early",
    30,
    "Nobody is told of an end before what earlier epochs committed is known",
    (Leading, "is_end_known", property(lambda self: True)),
)

# -- who leads, and who has everything ------------------------------------------------------------


def _due_for_anyone(self: Any, found: Any, lives: Any, refusals: Any, now: float) -> Any:
    is_led = found.leader in lives and not refusals.is_gone(found.leader, 0)
    return None if is_led else now


def _led_by_anyone(found: state.PartitionState, *who: int) -> state.PartitionState:
    return replace(state.unclean(found, *who), unclean_epoch=found.unclean_epoch)


_mutation(
    "anyone",
    20,
    "Only an in-sync replica becomes leader",
    (Electing, "due_at", _due_for_anyone),
    (replica, "led_by", _led_by_anyone),
)
_mutation(
    "same_epoch",
    20,
    "A new life of the leader begins a new epoch",
    (
        state.PartitionState,
        "is_led_by",
        lambda self, broker_id, life: self.leader == broker_id,
    ),
)
_mutation(
    "same_opening",
    1000,
    "A leader whose log was out of service begins a new epoch",
    (Replica, "_may_append_in", lambda self, state, last_epoch: True),
)
_opened = Replica.opened
_mutation(
    "wiped_stays",
    40,
    "Who has another directory isn't in sync any more",
    (Replica, "opened", lambda self, *, is_whole: _opened(self, is_whole=True)),
)
# It takes an empty disk that is back before its session ends.
_mutation(
    "unmarked",
    400,
    "Another directory says first what it lacks, and is the broker's only then",
    (ReplicaTree, "copies_of", lambda self, broker_id: []),
    scene="copies",
)


def _forfeited_in_place(found: state.PartitionState, broker_id: int) -> state.PartitionState:
    return state.left(found, broker_id)


_moved = state.moved


def _moved_in_place(found: Any, *rest: Any) -> Any:
    after = _moved(found, *rest)
    is_same = (after.leader, after.life) == (found.leader, found.life)
    return replace(after, epoch=found.epoch) if is_same else after


_learned = Replica.learned


def _learned_anyhow(self: Any, found: Any, version: int, lives: Any) -> None:
    self.version = -1
    _learned(self, found, version, lives)


_mutation(
    "old_read",
    500,
    "What was read earlier never replaces what was read later",
    (Replica, "learned", _learned_anyhow),
)
_close_epoch = Replica._close_epoch


def _close_silently(self: Any) -> None:
    _close_epoch(self)
    self._has_ended = False


_mutation(
    "unheard",
    10,
    "Who waits hears when leadership ends",
    (Replica, "_close_epoch", _close_silently),
)
_mutation(
    "nothing_forgotten_of_moves",
    300,
    "What a copy had that goes by a move counts no more, by an epoch of its own",
    (moving, "moved", _moved_in_place),
    (replica, "forfeited", _forfeited_in_place),
    (Leading, "learned", lambda self, found: setattr(self, "state", found)),
)

# -- unclean elections, and who is out of step ----------------------------------------------------


def _never_told(self: Any, *rest: Any) -> Any:
    self._unclean_epoch = -1
    return _fetch(self, *rest)


_mutation(
    "unclean_unknown",
    300,
    "What an unclean election lost is cut from all copies",
    (Following, "fetch", _never_told),
)
_mutation(
    "out_of_step",
    1000,
    "A producer is told that it is out of step by who leads for certain",
    (Leading, "led_at", lambda self, time: True),
)
_mutation(
    "never_back",
    20,
    "Leadership goes back to who is preferred",
    (PreferredLeader, "due", lambda self, leading, lives, now: NOBODY),
)
