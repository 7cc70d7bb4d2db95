"""Calls a callback handler's hooks, and survives them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hermes.client.batching import ProducerData
from hermes.client.metrics import ProducerCounters
from hermes.client.producing import SendResult

__all__ = ["Hooks"]

_log = logging.getLogger(__name__)


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

    def after(
        self, items: Sequence[ProducerData], results: Sequence[SendResult | Exception]
    ) -> None:
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
