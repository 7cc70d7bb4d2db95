"""Where a small request's instructions and system calls go, by layer, in a broker of its own.

Requests go one after the other. Three brokers answer them:

- under callgrind, which counts the instructions of all threads, without the kernel's. What a
  request costs is the difference between a hundred of them and several hundred, by their number;
- under callgrind with a profile function, which lets it collect in one layer at a time: a room of
  Hermes, or a package below it, in the reactor's thread or in others. To be seen costs
  instructions, so these are shares, which are applied to the totals of the first;
- under strace, which counts system calls.

A broker under callgrind is some fifty times slower than it is, so that its timers, which go on as
ever, are counted too often.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from bench.peers.system import NotInstalled
from bench.support.counting import CallgrindBroker, CountedBroker, StraceBroker, build_collecting
from bench.support.report import Row, bound_row, skipped_row
from bench.support.request_kinds import EMBEDDED, KINDS, TOPICS, Makes
from bench.support.settings import Settings

__all__ = ["measure"]

_UNIT = "k"
_FIRST = 100
_WARM_UP = 20
#: By layer there are so many times fewer requests, for all of them are made once for each layer.
_FEWER = 16
#: Calls a request that a layer or a system call needs to be counted, and shown.
_LEAST = 0.5

_Broker = TypeVar("_Broker", bound=CountedBroker)
_Read = TypeVar("_Read")


@dataclass(slots=True)
class _Cost:
    """What one request costs.

    Attributes:
        total: thousand instructions.
        layers: of these, by layer.
        calls: Python's calls, by layer.
        c_calls: calls of C functions, by layer of their caller.
        system: system calls, by name.
    """

    total: float = 0.0
    layers: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    c_calls: Counter[str] = field(default_factory=Counter)
    system: Counter[str] = field(default_factory=Counter)

    def less(self, other: "_Cost") -> "_Cost":
        """What is left when another one's is taken off."""
        left = replace(self, total=self.total - other.total)
        for each in fields(self):
            if each.name != "total":
                counts = Counter(getattr(self, each.name))
                counts.subtract(getattr(other, each.name))
                setattr(left, each.name, counts)
        return left


_Costs: TypeAlias = Mapping[str, _Cost]


def measure(settings: Settings) -> list[Row]:
    """Count, and hold the totals against what they have to stay below."""
    names = _chosen(settings.only)
    needed = dict.fromkeys([*names, *(KINDS[name].less for name in names if KINDS[name].less)])
    costs = {name: _Cost() for name in needed}
    with settings.workspace() as directory:
        collecting = build_collecting(directory)
        missing = ""
        for place, is_embedded in (("none", False), ("embedded", True)):
            those = {n: cost for n, cost in costs.items() if KINDS[n].is_embedded is is_embedded}
            if those:
                missing = _count(directory / place, collecting, those, settings)
    rows = [row for name in names for row in _rows(name, costs)]
    return [*rows, skipped_row("system calls", missing)] if missing else rows


def _chosen(only: str) -> list[str]:
    if not only:
        return [name for name, kind in KINDS.items() if not kind.is_part]
    names = only.split(",")
    if unknown := [name for name in names if name not in KINDS]:
        raise RuntimeError(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return names


def _count(directory: Path, collecting: Path, costs: _Costs, settings: Settings) -> str:
    """Fill in the costs of kinds that share their brokers; what is missing for the rest."""
    is_embedded = any(KINDS[name].is_embedded for name in costs)
    configured = {"topics": TOPICS, **(EMBEDDED if is_embedded else {})}
    more, few = settings.requests, max(1, settings.requests // _FEWER)
    with CallgrindBroker(directory / "totals", collecting, **configured) as broker:
        _each(broker, costs, lambda *each: _count_total(*each, more))
    if settings.totals:
        return ""
    with CallgrindBroker(directory / "layers", collecting, by_layer=True, **configured) as broker:
        _each(broker, costs, lambda *each: _count_layers(*each, few))
    try:
        with StraceBroker(directory / "system", **configured) as traced:
            _each(traced, costs, lambda *each: _count_system(*each, more))
    except NotInstalled as error:
        return str(error)
    return ""


def _each(broker: _Broker, costs: _Costs, count: Callable[[_Broker, Makes, _Cost], None]) -> None:
    for name, cost in costs.items():
        with ExitStack() as stack:
            make = KINDS[name].prepare(broker, name, stack)
            make(_WARM_UP)
            broker.rest()
            count(broker, make, cost)


def _after(broker: CountedBroker, make: Makes, requests: int, read: Callable[[], _Read]) -> _Read:
    """What a broker shows once it has answered so many requests, and rests."""
    make(requests)
    broker.rest()
    return read()


def _count_total(broker: CallgrindBroker, make: Makes, cost: _Cost, more: int) -> None:
    broker.instructions()
    first = _after(broker, make, _FIRST, broker.instructions)
    cost.total = (_after(broker, make, _FIRST + more, broker.instructions) - first) / more / 1000


def _count_layers(broker: CallgrindBroker, make: Makes, cost: _Cost, few: int) -> None:
    broker.take_layers()
    collected: Counter[str] = Counter()
    layers = _after(broker, make, few, broker.take_layers)
    for index, (name, calls, c_calls) in enumerate(layers):
        if calls + c_calls >= _LEAST * few:
            cost.calls[name], cost.c_calls[name] = calls / few, c_calls / few
            broker.watch(index)
            broker.instructions()
            collected[name] = _after(broker, make, few, broker.instructions)
    scale = cost.total / collected.total()
    cost.layers = Counter({name: scale * counted for name, counted in collected.items()})


def _count_system(broker: StraceBroker, make: Makes, cost: _Cost, more: int) -> None:
    broker.system_calls()
    first = _after(broker, make, _FIRST, broker.system_calls)
    calls = _after(broker, make, _FIRST + more, broker.system_calls)
    calls.subtract(first)
    cost.system = Counter({name: count / more for name, count in calls.items()})


def _rows(name: str, costs: _Costs) -> list[Row]:
    kind, cost = KINDS[name], costs[name]
    if kind.less:
        cost = cost.less(costs[kind.less])
    title, note = f"{name}: {kind.title}", _note(cost) if cost.layers else ""
    if kind.below is None:
        rows = [Row(title, _UNIT, cost.total, note=note)]
    else:
        rows = [bound_row(title, _UNIT, cost.total, below=kind.below, note=note)]
    for layer, thousands in cost.layers.most_common():
        calls = f"{cost.calls[layer]:.1f} + {cost.c_calls[layer]:.1f}"
        rows.append(Row(f"    {layer} ({calls} calls)", _UNIT, thousands, cost.total))
    return rows


def _note(cost: _Cost) -> str:
    calls = f"{cost.calls.total():.0f} calls in Python, {cost.c_calls.total():.0f} of C functions"
    system = [f"{name} {n:.1f}" for name, n in cost.system.most_common() if n >= _LEAST]
    return f"{calls}; {cost.system.total():.1f} system calls: {', '.join(system)}"
