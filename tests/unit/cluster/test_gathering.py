"""What is wanted while something is under way is done together."""

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.gathering import Gathered


class Doing:
    def __init__(self) -> None:
        self.under_way: list[tuple[list[int], Deferred[Any]]] = []

    async def __call__(self, items: Sequence[int]) -> Any:
        done: Deferred[Any] = Deferred()
        self.under_way.append((list(items), done))
        return await done

    def end(self, results: Any) -> list[int]:
        items, done = self.under_way.pop()
        done.callback(results)
        return items


def test_the_next_ones_gather_while_one_is_under_way() -> None:
    doing, got = Doing(), []
    gathered = Gathered[int](doing, 3)
    for number in range(6):
        gathered.add(number).addCallback(got.append)
    assert doing.end("a") == [0]
    assert doing.end("bc") == [1, 2, 3]  # the last of them comes again
    assert doing.end("def") == [3, 4, 5]
    assert got == list("abcdef")
    assert not doing.under_way
    gathered.add(6).addCallback(got.append)
    assert doing.end("g") == [6]


def test_what_fails_fails_for_those_that_it_is_about() -> None:
    doing, got = Doing(), []
    gathered = Gathered[int](doing, 3)
    for number in range(5):
        gathered.add(number).addBoth(got.append)
    doing.end([Failure(ValueError("first"))])
    doing.end(Failure(ValueError("all three")))
    doing.end("z")
    assert [getattr(each, "value", each).args for each in got[:4]] == [
        ("first",),
        *[("all three",)] * 3,
    ]
    assert got[4] == "z"
