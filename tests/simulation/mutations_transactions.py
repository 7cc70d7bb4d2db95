"""Rules of transactions, each with what breaks it, and within how many seeds that is found.

As in `mutations_today`, for the scene `transactions`.

Some rules take what hardly ever comes about here; that they are broken is found by tests below
`tests/unit`. That a marker of an older epoch or coordinator ends nothing, by
`storage/test_transactions.py`: one would have to stay in the network until the next transaction has
begun in its partition, and brokers ask again over the connection that it is in. That a batch is
refused whose transaction has ended while its partition joined, by `kafka/test_transactions.py`, and
that offsets are, by `groups/test_pending_offsets.py`: whom others have fenced, or whose time was
up, is known by its epoch anyway, so it takes a producer of an older version that ends a transaction
while it is still sending. In 200 schedules the first never came about, and the others three times.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mutations_today import does_nothing, gives, having
from schedule import MUTATIONS, Mutation
from twisted.internet.defer import Deferred

from hermes.groups import coordinator as groups
from hermes.groups.coordinator import GroupCoordinator
from hermes.kafka.transactions.coordinator import Entry, TransactionCoordinator
from hermes.kafka.transactions.ending import Ending
from hermes.kafka.transactions.state_log import StateLog
from hermes.kafka.transactions.transactions import Transactions
from hermes.protocol.kafka_errors import Code
from hermes.protocol.transaction_markers import CommittedOnly
from hermes.storage import transactions
from hermes.storage.compaction import _Compaction
from hermes.storage.log_state import LogState
from hermes.storage.log_transactions import LogTransactions
from hermes.transactions import deciding
from hermes.transactions.state import State


def _stable_as_committed(_: Any) -> Any:
    return lambda self, mark, earliest: mark


def _all_written(_: Any) -> Any:
    async def write(self: Any, marker: Any, version: int, places: Any) -> Any:
        return set(places)

    return write


def _stored_later(store: Any) -> Any:
    async def storing(self: Any, *what: Any) -> None:
        Deferred.fromCoroutine(store(self, *what)).addErrback(lambda _: None)

    return storing


def _of_any_epoch(decide: Any) -> Any:
    """Take every producer for the one that has the last epoch."""

    def decided(known: Any, producer: Any, *more: Any, **options: Any) -> Any:
        if known is not None:
            producer = producer._replace(epoch=known.epoch)
        return decide(known, producer, *more, **options)

    return decided


def _left_open(initialized: Any) -> Any:
    def begin(known: Any, *more: Any) -> Any:
        if known is not None and known.state is State.ONGOING:
            known = known._replace(state=State.COMPLETE_ABORT, places=frozenset())
        return initialized(known, *more)

    return begin


def _with_the_epoch_kept(initialized: Any) -> Any:
    def begin(known: Any, *more: Any) -> Any:
        made = initialized(known, *more)
        is_new = known is None or made.state is not State.EMPTY
        return made if is_new else made._replace(epoch=known.epoch)

    return begin


def _all_in(_: Any) -> Any:
    async def join(self: Any, name: str, producer: Any, places: Any, *, adds: bool) -> Any:
        return dict.fromkeys(places, Code.NONE)

    return join


def _repeated_by_anybody(ended: Any) -> Any:
    def end(known: Any, *more: Any, **options: Any) -> Any:
        grown = known and known._replace(version=deciding.EPOCH_GROWS)
        made = ended(grown, *more, **options)
        return known if made is grown else made

    return end


def _new_ends_only(load: Any) -> Any:
    async def loading(self: Any, *part: Any) -> None:
        self._end = does_nothing(None)
        try:
            await load(self, *part)
        finally:
            del self._end

    return loading


def _always_commits(end: Any) -> Any:
    async def ending(self: Any, name: str, producer_id: int, *, commits: bool) -> Any:
        return await end(self, name, producer_id, commits=True)

    return ending


def _forgets_offsets(_: Any) -> Any:
    async def ending(self: Any, name: str, producer_id: int, *, commits: bool) -> Any:
        return Code.NONE

    return ending


def _nothing_is_open(replace: Any) -> Any:
    return lambda self, begun, ended: replace(self, {}, ())


_TRANSACTIONS: dict[str, tuple[str, int, Callable[[], AbstractContextManager[None]]]] = {
    "stable_past_open": (
        "nothing is stable from the first transaction on that is open",
        5,
        having(LogState, "stable_end", _stable_as_committed),
    ),
    "aborted_untold": (
        "who reads what was committed is told what was aborted",
        5,
        having(LogTransactions, "aborted_in", gives([])),
    ),
    "open_forgotten": (
        "a broker that starts again knows which transactions are open",
        5,
        having(transactions.Transactions, "replace", _nothing_is_open),
    ),
    "no_markers": (
        "a decided transaction ends once its markers are written everywhere",
        5,
        having(Ending, "_write", _all_written),
    ),
    "stored_later": (
        "what is decided is on disk before anybody hears of it",
        100,
        having(StateLog, "store", _stored_later),
    ),
    "read_early": (
        "a coordinator reads the state once it knows all that was committed",
        60,
        having(StateLog, "is_readable", lambda _: property(lambda self: True)),
    ),
    "not_taken_over": (
        "a new coordinator ends what earlier ones have decided",
        10,
        having(TransactionCoordinator, "_load", _new_ends_only),
    ),
    "at_once": (
        "one change of an id at a time",
        5,
        having(
            Entry, "is_changing", lambda _: property(lambda self: False, lambda self, value: None)
        ),
    ),
    "any_epoch_joins": (
        "a fenced producer adds nothing to a transaction",
        5,
        having(deciding, "_open_to", _of_any_epoch),
    ),
    "any_epoch_ends": (
        "a fenced producer ends nothing",
        5,
        having(deciding, "ended", _of_any_epoch),
    ),
    "any_end_repeated": (
        "only who has ended a transaction ends it once more",
        150,
        having(deciding, "ended", _repeated_by_anybody),
    ),
    "epoch_kept": (
        "a producer that begins fences those before it",
        5,
        having(deciding, "initialized", _with_the_epoch_kept),
    ),
    "left_open": (
        "what a producer leaves open is aborted when its successor begins",
        5,
        having(deciding, "initialized", _left_open),
    ),
    "never_late": (
        "what nobody ends is aborted once its time is up",
        20,
        having(deciding, "is_late", gives(False)),
    ),
    "aborted_replaces": (
        "what was aborted replaces nothing in compaction",
        80,
        having(_Compaction, "_committed", lambda _: lambda self, segment: CommittedOnly(())),
    ),
    "all_in": (
        "a batch is appended once its partition is part of its producer's transaction",
        5,
        having(Transactions, "join", _all_in),
    ),
    "offsets_at_once": (
        "a transaction's offsets aren't a group's before it is committed",
        5,
        having(groups, "pending_place", lambda _: lambda producer_id, place: place),
    ),
    "offsets_forgotten": (
        "a transaction's offsets are a group's once it is committed",
        5,
        having(GroupCoordinator, "end_transaction", _forgets_offsets),
    ),
    "offsets_of_aborted": (
        "the offsets of an aborted transaction are forgotten",
        5,
        having(GroupCoordinator, "end_transaction", _always_commits),
    ),
    "unstable_offsets": (
        "who wants stable offsets hears which ones are about to be replaced",
        5,
        having(GroupCoordinator, "unstable", gives(())),
    ),
}

MUTATIONS.update(
    {
        name: Mutation(rule, "transactions", seeds, make)
        for name, (rule, seeds, make) in _TRANSACTIONS.items()
    }
)
