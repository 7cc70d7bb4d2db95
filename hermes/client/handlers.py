"""Callback and event handlers around the sender: what they see, and what survives them.

Handlers see the application's values, so items are encoded after them. Whatever a handler does,
every item of a batch gets its outcome.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hermes.client.batching import Batch, Outcome, SendHandle, ends_the_application
from hermes.client.metrics import ProducerCounters
from hermes.client.payloads import Payloads, ProducerData, message_count
from hermes.client.producer_config import ProducerConfig
from hermes.client.sending import Sender
from hermes.client.sync_producer import SendResult
from hermes.errors import ClientError, HermesError
from hermes.interfaces import IPayloadObserver
from hermes.plugins import plugin_name
from hermes.quoting import quoted

_log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """What became of a batch, in messages but for `outcomes`: one per item of it, in order.

    `failed` counts what left and was not sent, `dropped` what the callback handler took out.
    """

    outcomes: Sequence[Outcome]
    sent: int
    failed: int
    dropped: int = 0


class Handlers:
    def __init__(
        self,
        callback_handler: Any,
        event_handler: Any,
        payloads: Payloads,
        sender: Sender,
        counters: ProducerCounters,
    ) -> None:
        self._hooks = None if callback_handler is None else _Hooks(callback_handler, counters)
        self._reports_failures = callback_handler is not None and getattr(
            callback_handler, "reports_failures", True
        )
        self._observer: _Observer | None = None
        if IPayloadObserver.providedBy(callback_handler):
            self._observer = _Observer(callback_handler, counters)
        self._event_handler = event_handler
        self._payloads = payloads
        self._sender = sender
        self._lock = threading.RLock()  # the event handler may send by this producer, too

    @property
    def report_failures(self) -> bool:
        return self._reports_failures

    def before_enqueue(self, item: ProducerData) -> ProducerData | None:
        """None if the item is to be dropped."""
        return item if self._hooks is None else self._hooks.before_enqueue(item)

    def after_enqueue(self, item: ProducerData, accepted: bool) -> None:
        if self._hooks is not None:
            self._hooks.after_enqueue(item, accepted)

    def open(self, config: ProducerConfig) -> None:
        if self._observer is not None:
            self._observer.open(config)

    def close(self) -> None:
        if self._event_handler is not None:
            self._event_handler.close()
        if self._hooks is not None:
            self._hooks.on_close()

    def send(self, items: Sequence[ProducerData]) -> Sent:
        hooks = self._hooks
        if hooks is None:
            return _counted(items, self._handled(items))
        placed = hooks.after_dequeue(items)
        taken = [each for each in placed if each is not None]
        if taken:
            hooks.before_send(taken)
        results = self._handled(taken) if taken else []
        hooks.after(taken, results)
        counted = _counted(taken, results)
        outcomes, dropped = _by_place(items, placed, results)
        return counted._replace(outcomes=outcomes, dropped=dropped)

    def _handled(self, items: Sequence[ProducerData]) -> list[Outcome]:
        if self._event_handler is None:
            return self._encode_and_send(items)
        name = f"the event handler {plugin_name(self._event_handler)}"
        try:
            with self._lock:
                given = self._event_handler.handle(items, self._encode_and_send)
        except Exception as error:
            return [error] * len(items)
        except BaseException as error:
            if ends_the_application(error):
                raise
            return [ClientError(f"{name} ended with {error!r}")] * len(items)
        try:
            results = list(given)
        except TypeError:
            return [ClientError(f"{name} gave {quoted(given)}, expected results")] * len(items)
        if len(results) != len(items):
            wrong = f"{name} gave {len(results)} results for {len(items)} items"
            return [ClientError(wrong)] * len(items)
        return [
            each
            if isinstance(each, SendResult | Exception)
            else ClientError(f"{name} gave {quoted(each)} as a result")
            for each in results
        ]

    def _encode_and_send(self, items: Sequence[ProducerData]) -> list[Outcome]:
        observer = self._observer
        batches: dict[str, Batch] = {}
        handles: list[SendHandle | HermesError] = []
        observed: list[tuple[str, bytes | list[bytes], SendHandle]] = []
        for topic, messages, key in items:
            try:
                payloads, key, count, _ = self._payloads.of(topic, messages, key)
                if observer is not None:
                    payloads = observer.after_encode(topic, payloads)
                    self._payloads.check_sizes(payloads)
            except HermesError as error:
                handles.append(error)
                continue
            if topic not in batches:
                batches[topic] = Batch(topic, time.monotonic())
            handle = batches[topic].add(payloads, key, count)
            handles.append(handle)
            if observer is not None:
                observed.append((topic, payloads, handle))
        sending = list(batches.values())
        for batch, delivery in zip(sending, self._sender.send(sending), strict=True):
            batch.finish(delivery)
        if observer is not None:
            observer.after_outcomes(observed)
        return [
            each if isinstance(each, HermesError) else each[0].outcome(each[1]) for each in handles
        ]


def _counted(items: Sequence[ProducerData], results: Sequence[Outcome]) -> Sent:
    total = sum(map(message_count, items))
    sent = sum(
        message_count(item)
        for item, result in zip(items, results, strict=True)
        if isinstance(result, SendResult)
    )
    return Sent(results, sent, total - sent)


def _by_place(
    items: Sequence[ProducerData],
    placed: Sequence[ProducerData | None],
    results: Sequence[Outcome],
) -> tuple[list[Outcome], int]:
    """Give every item the outcome of what the hook put in its place; and count what it took out."""
    # An item that the hook gave back keeps its own outcome wherever it is; a new one takes the
    # place of the item at its position. If there is none, or that one has its own, it has no
    # handle.
    places = {id(item): place for place, item in enumerate(items)}
    given_back = {places[id(each)] for each in placed if id(each) in places}
    outcomes: list[Outcome | None] = [None] * len(items)
    following = iter(results)
    for position, each in enumerate(placed):
        if each is None:
            continue
        result = next(following)
        place = places.get(id(each), position)
        if id(each) in places or (place < len(items) and place not in given_back):
            outcomes[place] = result
    gone = ClientError("the callback handler took the message out of its batch")
    dropped = sum(
        message_count(item) for item, each in zip(items, outcomes, strict=True) if each is None
    )
    return [gone if each is None else each for each in outcomes], dropped


class _Observer:
    """An `IPayloadObserver` whose exceptions are logged and counted instead of passed on."""

    def __init__(self, observer: Any, counters: ProducerCounters) -> None:
        self._observer = observer
        self._counters = counters

    def open(self, config: ProducerConfig) -> None:
        """What it raises prevents the producer."""
        self._observer.on_open(config)

    def after_encode(self, topic: str, payloads: bytes | list[bytes]) -> bytes | list[bytes]:
        given = payloads if isinstance(payloads, list) else [payloads]
        try:
            changed = list(self._observer.after_encode(topic, given))
        except Exception:
            self._failed("failed", exc_info=True)
            return payloads
        if len(changed) != len(given) or set(map(type, changed)) != {bytes}:
            self._failed(f"gave no {len(given)} payloads")
            return payloads
        return changed if isinstance(payloads, list) else changed[0]

    def after_outcomes(
        self, observed: Sequence[tuple[str, bytes | list[bytes], SendHandle]]
    ) -> None:
        sent = [
            (topic, [payloads] if isinstance(payloads, bytes) else payloads, batch.outcome(index))
            for topic, payloads, (batch, index) in observed
        ]
        try:
            self._observer.after_outcomes(sent)
        except BaseException as error:
            if ends_the_application(error):
                raise
            self._failed("failed", exc_info=True)

    def _failed(self, how: str, *, exc_info: bool = False) -> None:
        _log.error("a hook of %r %s", self._observer, how, exc_info=exc_info)
        self._counters.count_hook_error()


class _Hooks:
    """A callback handler whose exceptions are logged and counted instead of passed on."""

    def __init__(self, handler: Any, counters: ProducerCounters) -> None:
        self._handler = handler
        self._counters = counters

    def before_enqueue(self, item: ProducerData) -> ProducerData | None:
        changed = self._call(self._handler.before_enqueue, item, default=item)
        if changed is None:
            return None
        return self._checked([changed], [item])[0]

    def after_enqueue(self, item: ProducerData, accepted: bool) -> None:
        self._call(self._handler.after_enqueue, item, accepted)

    def after_dequeue(self, items: Sequence[ProducerData]) -> Sequence[ProducerData | None]:
        """None for an item that was taken out."""
        taken = self._call(self._handler.after_dequeue, items, default=items)
        return self._checked(taken, items, may_drop=True)

    def before_send(self, items: Sequence[ProducerData]) -> None:
        self._call(self._handler.before_send, items)

    def after(self, items: Sequence[ProducerData], results: Sequence[Outcome]) -> None:
        pairs = list(zip(items, results, strict=True))
        sent = [pair for pair in pairs if isinstance(pair[1], SendResult)]
        if sent:
            self._call(self._handler.after_send, *map(list, zip(*sent, strict=True)))
        failed: dict[int, tuple[Exception, list[ProducerData]]] = {}
        for item, result in pairs:
            if isinstance(result, Exception):
                failed.setdefault(id(result), (result, []))[1].append(item)
        for error, of_it in failed.values():
            self._call(self._handler.on_failure, of_it, error)

    def on_close(self) -> None:
        self._call(self._handler.on_close)

    def _checked(
        self, given: Any, otherwise: Sequence[ProducerData], *, may_drop: bool = False
    ) -> Sequence[ProducerData | None]:
        items = given if isinstance(given, list | tuple) else (self,)
        if isinstance(given, ProducerData) or not all(
            isinstance(each, ProducerData) or (may_drop and each is None) for each in items
        ):
            _log.error("a hook of %r gave no ProducerData: %.200r", self._handler, given)
            self._counters.count_hook_error()
            return otherwise
        return items

    def _call(self, hook: Callable[..., Any], *arguments: Any, default: Any = None) -> Any:
        try:
            return hook(*arguments)
        except BaseException as error:
            if ends_the_application(error):
                raise
            _log.exception("a hook of %r failed", self._handler)
            self._counters.count_hook_error()
            return default
