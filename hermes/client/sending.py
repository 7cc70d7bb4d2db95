"""The sender: groups items into sets, gets these to their brokers, and retries within bounds.

The only loop of retries. Order within a partition is kept: while a set of a partition may still be
retried, none after it is sent.
"""

import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeGuard

from hermes.backoff import growing_pause
from hermes.client.batching import Batch
from hermes.client.grouping import Delivery, OutgoingSet, SetRules
from hermes.client.routing import Router
from hermes.client.sync_producer import SendResult, SyncProducer
from hermes.client.topic_metadata import Brokers, Target
from hermes.errors import (
    BrokerNotReachedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ClientError,
    HermesError,
    NotLeaderError,
    OutcomeUnknownError,
    WrongFormatError,
    WrongPartitionError,
    is_retriable,
)
from hermes.protocol import NOBODY, Acks, ProduceRequest
from hermes.rate_limit import RateLimit

_log = logging.getLogger(__name__)

#: How large a set becomes that isn't answered: brokers take it in as it arrives.
MAX_SET_BYTES: Final = 1024 * 1024
#: ... and one that is: a round trip for each set of a partition, so larger ones are better.
MAX_ACKNOWLEDGED_SET_BYTES: Final = 8 * 1024 * 1024
_MAX_REQUEST_SETS: Final = 1000
_LEAST_SECONDS: Final = 0.001
# Pauses double up to this, so that a broker that is back is found within about a second; a longer
# first pause stays as it is.
_LONGEST_PAUSE_SECONDS: Final = 1.0
# Not even a pause of 0 may become a loop that does nothing but fail.
_SHORTEST_PAUSE_SECONDS: Final = 0.001
# After one of these nobody knows whether the set is stored, whatever later tries come to.
_UNCERTAIN: Final = (OutcomeUnknownError, BrokerTimeoutError, BrokerUnavailableError)


class RetryRules(NamedTuple):
    """What bounds the tries of one delivery.

    Attributes:
        delivery_seconds: how long all tries may take together, above 0.
        first_pause_seconds: before the second try, 0 or more; each further pause is twice as long.
        max_retries: how many tries there are after the first; None for as many as the time allows.
    """

    delivery_seconds: float
    first_pause_seconds: float
    max_retries: int | None = None


class Retries:
    """The tries of one delivery. The first one begins now.

    `chance` lengthens a pause by up to a half: producers that failed together return one by one.
    """

    def __init__(
        self,
        rules: RetryRules,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.count = 0
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._deadline = clock() + rules.delivery_seconds

    @property
    def seconds_left(self) -> float:
        return self._deadline - self._clock()

    def next_pause(self) -> float | None:
        """None when there is to be no other try."""
        if self._rules.max_retries is not None and self.count >= self._rules.max_retries:
            return None
        first = max(self._rules.first_pause_seconds, _SHORTEST_PAUSE_SECONDS)
        plain = growing_pause(first, self.count, max(first, _LONGEST_PAUSE_SECONDS))
        pause = plain * (1 + self._chance() / 2)
        if pause >= self.seconds_left:
            return None
        self.count += 1
        return pause


class Sender:
    """Sends items. Threads may share it, each with items of its own.

    Args:
        router: chooses targets, also again for sets without a key and for those whose partition is
            gone with its broker.
        acks: the acknowledgement to wait for; None for none.
        may_go_without: whether to send all the same to a broker that can't acknowledge.
    """

    def __init__(
        self,
        brokers: Brokers,
        router: Router,
        rules: SetRules,
        acks: Acks | None,
        retry_rules: RetryRules,
        *,
        may_go_without: bool = False,
    ) -> None:
        self._brokers = brokers
        self._router = router
        self._rules = rules
        self._acks = acks
        self._retry_rules = retry_rules
        self._may_go_without = may_go_without
        self._abandoned = threading.Event()
        self._log_limit = RateLimit(time.monotonic, allowed=1)
        self._noted: set[str] = set()

    def send(self, batches: Sequence[Batch]) -> list[Delivery]:
        """Send batches of payloads together; every item has its outcome afterwards."""
        retries = Retries(self._retry_rules)
        deliveries = [Delivery(each, self._router, self._rules) for each in batches]
        pending = [each for delivery in deliveries for each in delivery.sets]
        uncertain: dict[OutgoingSet, HermesError] = {}
        while True:
            self._attempt(pending, retries)
            again = [each for each in pending if self._has_other_format(each)]
            if again:
                self._attempt(again, retries)
            failed = [each for each in pending if not isinstance(each.outcome, SendResult)]
            for each in failed:
                if _is_uncertain(each.outcome):
                    uncertain[each] = each.outcome
            pending = [each for each in failed if _may_be_tried_again(each)]
            unplaced = [each[index] for each in deliveries for index in each.unplaced]
            pause = retries.next_pause() if pending or unplaced else None
            if pause is None or self._abandoned.wait(pause):
                # That nothing was sent or written is true of the last try only.
                for each, error in uncertain.items():
                    if not isinstance(each.outcome, SendResult):
                        each.outcome = error
                return deliveries
            self._log_what_failed(pending, unplaced, retries)
            self._choose_again(pending)
            for delivery in deliveries:
                pending += delivery.place_again()

    def _has_other_format(self, each: OutgoingSet) -> bool:
        return isinstance(each.outcome, WrongFormatError) and each.encode_again(
            self._rules.codec_of(each.topic), self._rules
        )

    def settle(self) -> None:
        """Make sure that brokers have read what was sent; raises HermesError when one may not."""
        try:
            self._brokers.settle()
        except HermesError:
            self._rules.formats.forget()  # a topic that refuses what it took is another one by now
            raise

    def abandon(self) -> None:
        self._abandoned.set()

    def _log_what_failed(
        self, sets: Sequence[OutgoingSet], refused: Sequence[object], retries: Retries
    ) -> None:
        if self._log_limit.allow("failed") is None:
            return
        _log.warning(
            "%s tried again, for %.0f s more: %s",
            count_of(len(sets), len(refused)),
            retries.seconds_left,
            sets[0].outcome if sets else refused[0],
        )

    def _choose_again(self, sets: Sequence[OutgoingSet]) -> None:
        for each in sets:
            if isinstance(each.outcome, BrokerUnavailableError) and each.sent_to != NOBODY:
                self._router.avoid(each.sent_to)
            if not each.has_key or not self._router.has(each.topic, each.target):
                try:
                    each.target = self._router.choose(each.topic, each.key)
                except HermesError as failure:
                    # The former target is as good as any while nothing better is known.
                    _log.debug("no other partition for topic %r: %s", each.topic, failure)

    def _attempt(self, sets: Sequence[OutgoingSet], retries: Retries) -> None:
        by_broker: defaultdict[int, list[OutgoingSet]] = defaultdict(list)
        leaders: dict[tuple[str, Target], int] = {}  # one look for all sets of a partition
        for each in sets:
            place = each.topic, each.target
            if place not in leaders:
                leaders[place] = self._router.leader(*place)
            each.sent_to = leaders[place]
            by_broker[each.sent_to].append(each)
        for broker_id, group in by_broker.items():
            self._send_to_broker(broker_id, group, retries)

    def _send_to_broker(
        self, broker_id: int, sets: Sequence[OutgoingSet], retries: Retries
    ) -> None:
        try:
            broker = self._brokers[broker_id]
            acks = self._acks_of(broker)
            asks = acks is None and broker.can_acknowledge()
        except HermesError as error:
            for each in sets:
                each.outcome = error
        else:
            records = [each for each in sets if each.is_records]
            messages = [each for each in sets if not each.is_records] if records else sets
            if records:  # of which none goes without an answer
                self._send_acknowledged(broker, records, acks or Acks.WRITTEN, retries)
            if asks:  # only an answer tells which format a topic has, or gets
                known = self._rules.formats.holds_records
                unknown = [each for each in messages if known(each.topic) is None]
                messages = [each for each in messages if known(each.topic) is not None]
                self._send_acknowledged(broker, unknown, Acks.WRITTEN, retries)
            if acks is None:
                self._send_unanswered(broker, messages)
            elif messages:
                self._send_acknowledged(broker, messages, acks, retries)
        for each in sets:
            if type(each.outcome) is ClientError and self._brokers[broker_id] is not broker:
                # Another thread has closed the connection, before this was sent.
                each.outcome = BrokerNotReachedError(f"broker {broker_id} is elsewhere by now")
            if isinstance(
                each.outcome, WrongPartitionError | BrokerUnavailableError | NotLeaderError
            ):
                self._router.forget(each.topic)

    def _acks_of(self, broker: SyncProducer) -> Acks | None:
        """What to wait for; asks the broker when it matters whether it can."""
        if not self._may_go_without or broker.can_acknowledge():
            return self._acks
        if broker.address not in self._noted:
            self._noted.add(broker.address)
            _log.warning(
                "%s can't acknowledge (is it a Kafka 0.7?): whether it has what is sent shows in "
                "flush and close only; acks='none' says that this is known",
                broker.address,
            )
        return None

    def _send_unanswered(self, broker: SyncProducer, sets: Sequence[OutgoingSet]) -> None:
        failure: HermesError | None = None
        for request in _requests(sets, MAX_SET_BYTES):
            if failure is None:
                try:
                    if len(request) == 1:
                        (only,) = request
                        broker.send(only.topic, only.target.partition, only.encoded)
                    else:
                        broker.multi_send(_produces(request))
                except HermesError as error:
                    failure = error  # what follows must not overtake
            for each in request:
                each.outcome = failure or SendResult(each.topic, each.target.partition, None)
        if failure is not None:
            self._rules.formats.forget()

    def _send_acknowledged(
        self, broker: SyncProducer, sets: Sequence[OutgoingSet], acks: Acks, retries: Retries
    ) -> None:
        longest = broker.channel.connection.timeout_seconds
        for one_each in _rounds(sets):
            for request in _requests(one_each, 2 * MAX_ACKNOWLEDGED_SET_BYTES):
                # A try may end later than all of them may: without any time it is none.
                timeout = min(longest, max(retries.seconds_left, _LEAST_SECONDS))
                try:
                    outcomes: Sequence[SendResult | HermesError]
                    is_records = request[0].is_records
                    send = broker.send_records if is_records else broker.send_acknowledged
                    outcomes = send(_produces(request), acks, timeout_seconds=timeout)
                except HermesError as error:
                    outcomes = [error] * len(request)
                for each, outcome in zip(request, outcomes, strict=True):
                    each.outcome = outcome
                    if not is_records and isinstance(outcome, SendResult):
                        self._rules.formats.note(each.topic, False)


def _is_uncertain(outcome: object) -> TypeGuard[HermesError]:
    return isinstance(outcome, _UNCERTAIN) and not isinstance(outcome, BrokerNotReachedError)


def _may_be_tried_again(each: OutgoingSet) -> bool:
    return isinstance(each.outcome, Exception) and is_retriable(each.outcome)


def _produces(sets: Iterable[OutgoingSet]) -> list[ProduceRequest]:
    return [ProduceRequest(each.topic, each.target.partition, each.encoded) for each in sets]


def _requests(sets: Sequence[OutgoingSet], max_bytes: int) -> Iterator[Sequence[OutgoingSet]]:
    """Put sets together into requests, in order.

    A request is far smaller than what brokers take (100 MiB), so as not to hold up others.
    """
    if len(sets) == 1:
        yield sets
        return
    request: list[OutgoingSet] = []
    size = 0
    for each in sets:
        too_much = size + len(each.encoded) > max_bytes
        if request and (too_much or len(request) == _MAX_REQUEST_SETS):
            yield request
            request, size = [], 0
        request.append(each)
        size += len(each.encoded)
    if request:
        yield request


def _rounds(sets: Sequence[OutgoingSet]) -> Iterator[Sequence[OutgoingSet]]:
    """Yield the sets such that each round has one of a partition, the next only if that is settled.

    A set after one that may be retried inherits its error, and so is retried after it.
    """
    if len(sets) == 1:
        yield sets
        return
    queues: defaultdict[tuple[str, int], list[OutgoingSet]] = defaultdict(list)
    for each in reversed(sets):
        queues[each.topic, each.target.partition].append(each)
    while queues:
        one_each = [queue.pop() for queue in queues.values()]
        yield one_each
        for place, sent in zip(list(queues), one_each, strict=True):
            if is_retriable(sent.outcome if isinstance(sent.outcome, Exception) else None):
                for following in queues.pop(place):
                    following.outcome = sent.outcome
            elif not queues[place]:
                del queues[place]


def count_of(sets: int, refused: int) -> str:
    """Begin a sentence about what failed: message sets, and sends without a known partition.

    One of the two is above 0; the sentence continues after its verb.
    """
    parts = [
        f"{count} {what if count == 1 else what + 's'}{more}"
        for count, what, more in (
            (sets, "message set", ""),
            (refused, "send", " without a known partition"),
        )
        if count
    ]
    return " and ".join(parts) + (" is" if sets + refused == 1 else " are")
