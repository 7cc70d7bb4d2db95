"""Callback and event handlers around the sender: what they see, and what survives them.

Handlers see the application's values, so items are encoded only when they have. Whatever a handler
does, every item of a batch gets its outcome.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hermes.client.batching import Outcome, ProducerData, message_count
from hermes.client.metrics import ProducerCounters
from hermes.client.payloads import Payloads
from hermes.client.sending import Sender
from hermes.client.sync_producer import SendResult
from hermes.errors import ClientError, HermesError

__all__ = ["Handlers", "Hooks"]

_log = logging.getLogger(__name__)


class Handlers:
    """Sends batches of values, between the hooks and through the event handler.

    Args:
        payloads: encodes what handlers have seen.
        sender: sends it.
        hooks: the callback handler; None for none.
        event_handler: an `IEventHandler`; None for none.
    """

    def __init__(
        self, payloads: Payloads, sender: Sender, hooks: "Hooks | None", event_handler: Any
    ) -> None:
        self._payloads = payloads
        self._sender = sender
        self._hooks = hooks
        self._event_handler = event_handler
        self._lock = threading.Lock()

    def send(self, items: Sequence[ProducerData]) -> tuple[list[Outcome], int]:
        """Send items.

        Returns:
            Their outcomes, in order, and how many messages were sent.
        """
        outcomes = self._watched(items)
        sent = sum(
            message_count(item)
            for item, outcome in zip(items, outcomes, strict=True)
            if isinstance(outcome, SendResult)
        )
        return outcomes, sent

    def _watched(self, items: Sequence[ProducerData]) -> list[Outcome]:
        hooks = self._hooks
        if hooks is None:
            return self._handled(items)
        taken = hooks.after_dequeue(items)
        if taken:
            hooks.before_send(taken)
        results = self._handled(taken) if taken else []
        hooks.after(taken, results)
        if len(taken) == len(items):
            return results
        by_item = {id(item): result for item, result in zip(taken, results, strict=True)}
        gone = ClientError("the callback handler took the message out of its batch")
        return [by_item.get(id(item), gone) for item in items]

    def _handled(self, items: Sequence[ProducerData]) -> list[Outcome]:
        """Send items as the event handler does, or in the built-in way."""
        if self._event_handler is None:
            return self._encode_and_send(items)
        try:
            with self._lock:
                results = list(self._event_handler.handle(items, self._encode_and_send))
        except Exception as error:
            return [error] * len(items)
        if len(results) != len(items):
            wrong = f"the event handler gave {len(results)} results for {len(items)} items"
            return [ClientError(wrong)] * len(items)
        return [
            each
            if isinstance(each, SendResult | Exception)
            else ClientError(f"the event handler gave {each!r} as a result")
            for each in results
        ]

    def _encode_and_send(self, items: Sequence[ProducerData]) -> list[Outcome]:
        results: list[Outcome | None] = []
        encoded = []
        for topic, messages, key in items:
            try:
                payloads, _, _ = self._payloads.of(topic, messages)
            except HermesError as error:
                results.append(error)
            else:
                results.append(None)
                encoded.append(ProducerData(topic, payloads, key))
        outcomes = iter(self._sender.send(encoded)) if encoded else iter(())
        return [next(outcomes) if each is None else each for each in results]


class Hooks:
    """A callback handler whose exceptions are logged and counted instead of passed on.

    Args:
        handler: an `ICallbackHandler`.
        counters: where its exceptions are counted.
    """

    def __init__(self, handler: Any, counters: ProducerCounters) -> None:
        self._handler = handler
        self._counters = counters

    def before_enqueue(self, item: ProducerData) -> ProducerData | None:
        """The item to put into the queue; the one given when the hook fails."""
        changed = self._call(self._handler.before_enqueue, item, default=item)
        if changed is None:
            return None
        return self._checked([changed], [item])[0]

    def after_enqueue(self, item: ProducerData, accepted: bool) -> None:
        """Tell whether the queue took it."""
        self._call(self._handler.after_enqueue, item, accepted)

    def after_dequeue(self, items: Sequence[ProducerData]) -> Sequence[ProducerData]:
        """The items to go on with; those given when the hook fails."""
        taken = self._call(self._handler.after_dequeue, items, default=items)
        return self._checked(taken, items)

    def before_send(self, items: Sequence[ProducerData]) -> None:
        """Tell that they are sent now."""
        self._call(self._handler.before_send, items)

    def after(self, items: Sequence[ProducerData], results: Sequence[Outcome]) -> None:
        """Tell what was sent, and for each error what failed with it."""
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
        """Tell that nothing is called any more."""
        self._call(self._handler.on_close)

    def _checked(self, given: Any, otherwise: Sequence[ProducerData]) -> Sequence[ProducerData]:
        items = given if isinstance(given, list | tuple) else (None,)
        if all(isinstance(each, ProducerData) for each in items):
            return items
        _log.error("a hook of %r gave no ProducerData: %r", self._handler, given)
        self._counters.count_hook_error()
        return otherwise

    def _call(self, hook: Callable[..., Any], *arguments: Any, default: Any = None) -> Any:
        try:
            return hook(*arguments)
        except Exception:
            _log.exception("a hook of %r failed", self._handler)
            self._counters.count_hook_error()
            return default
