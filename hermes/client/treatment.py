"""What happens to a batch between the queue and its outcome: grouped, sent, watched by handlers."""

import threading
from collections.abc import Sequence
from typing import Any

from hermes.client.batching import (
    Batch,
    OutgoingSet,
    Owner,
    ProducerData,
    message_count,
    resolve,
)
from hermes.client.dispatch import Dispatcher
from hermes.client.grouping import SetRules, build
from hermes.client.hooks import Hooks
from hermes.client.payloads import Payloads
from hermes.client.producing import SendResult, is_retriable
from hermes.client.routing import Router
from hermes.errors import ClientError, HermesError

__all__ = ["Treatment"]


class Treatment:
    """Sends batches. Without handlers their items hold payloads, with them the values as given.

    Args:
        payloads: encodes what handlers have seen.
        router: chooses targets.
        rules: how sets are made.
        dispatcher: sends them.
        hooks: the callback handler; None for none.
        event_handler: an `IEventHandler`; None for none.
    """

    def __init__(
        self,
        payloads: Payloads,
        router: Router,
        rules: SetRules,
        dispatcher: Dispatcher,
        *,
        hooks: Hooks | None,
        event_handler: Any,
    ) -> None:
        self._payloads = payloads
        self._router = router
        self._rules = rules
        self._dispatcher = dispatcher
        self._hooks = hooks
        self._event_handler = event_handler
        self._handler_lock = threading.Lock()

    def of(self, batch: Batch) -> tuple[Sequence[Owner], int]:
        """Treat a batch.

        Returns:
            What its items' outcomes are made of, and how many messages were sent.
        """
        if self._hooks is None and self._event_handler is None:
            sets, owners = self._send(batch.items)
            sent = sum(len(each.payloads) for each in sets if isinstance(each.outcome, SendResult))
            return owners, sent
        results = self._watched(batch.items)
        sent = sum(
            message_count(item)
            for item, result in zip(batch.items, results, strict=True)
            if isinstance(result, SendResult)
        )
        return results, sent

    def _send(self, items: Sequence[ProducerData]) -> tuple[list[OutgoingSet], Sequence[Owner]]:
        """Send items; those without a target, for want of a broker to ask, are tried again too."""
        router = self._router
        sets, owners = build(items, router.choose, self._rules, router.steady)
        self._dispatcher.send(sets)
        if not isinstance(owners, list):
            return sets, owners  # uniform items have one target, or go the other way
        for _ in range(self._dispatcher.num_retries):
            left = [
                index
                for index, owner in enumerate(owners)
                if isinstance(owner, Exception) and is_retriable(owner)
            ]
            if not left or not self._dispatcher.pause():
                break
            more_sets, more_owners = build(
                [items[index] for index in left], router.choose, self._rules
            )
            self._dispatcher.send(more_sets)
            sets += more_sets
            for index, owner in zip(left, more_owners, strict=True):
                owners[index] = owner
        return sets, owners

    def _watched(self, items: list[ProducerData]) -> list[SendResult | Exception]:
        """Treat items between the hooks of the callback handler."""
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

    def _handled(self, items: Sequence[ProducerData]) -> list[SendResult | Exception]:
        """Treat items as the event handler does, or in the built-in way."""
        if self._event_handler is None:
            return self._encode_and_send(items)
        try:
            with self._handler_lock:
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

    def _encode_and_send(self, items: Sequence[ProducerData]) -> list[SendResult | Exception]:
        results: list[SendResult | Exception | None] = []
        encoded = []
        for topic, messages, key in items:
            try:
                payloads, _, _ = self._payloads.of(topic, messages)
            except HermesError as error:
                results.append(error)
            else:
                results.append(None)
                encoded.append(ProducerData(topic, payloads, key))
        _, owners = self._send(encoded)
        outcomes = map(resolve, owners)
        return [next(outcomes) if each is None else each for each in results]
