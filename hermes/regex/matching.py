"""Java's regular expressions, matched in time that is linear in the text.

A member of a group may register any expression, and every other member evaluates it. An engine that
backtracks, as Python's `re` does, can be kept busy for ever by a dozen characters, and holds the
interpreter's lock meanwhile. Here an expression becomes a small program (Thompson's NFA), whose
states are followed in parallel, character by character: each step is taken once per character.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hermes.regex.java_syntax import (
    At,
    Choice,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    Set,
    Test,
    parse_java,
)

# Far above what people write. They bound memory and time, whatever a member registers.
_MOST_STEPS: Final = 20_000
_MOST_WORK: Final = 100_000
_MOST_REMEMBERED: Final = 10_000

# How many states are remembered in all: some megabytes. A move counts for a few more than it has.
_MOST_STATES: Final = 100_000
_MOVE_STATES: Final = 10

# Where a match starts, among the moves that are remembered: no character is empty.
_BEGINNING: Final[tuple[frozenset[int], str]] = (frozenset(), "")


class RegexTooCostlyError(ValueError):
    """Matching this text takes more work than any reasonable expression does."""


class _Step(NamedTuple):
    """A step of a program; one that consumes and asserts nothing only leads on.

    Attributes:
        ways: the steps that follow; none at a program's end.
        character: what the next character must be.
        place: what the position in the text must be.
        part: a sub-program, for lookaround.
    """

    ways: tuple[int, ...] = ()
    character: Test | None = None
    place: Callable[[str, int], bool] | None = None
    part: "_SubProgram | None" = None


class _SubProgram(NamedTuple):
    start: int
    ahead: bool
    negated: bool


class _Moves:
    """Where characters lead, as far as it was found out before: at most so many states."""

    def __init__(self) -> None:
        self._found: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._states = 0
        self.get = self._found.get

    def keep(self, key: tuple[frozenset[int], str], states: frozenset[int]) -> None:
        if self._states >= _MOST_STATES:
            self._found.clear()
            self._states = 0
        self._found[key] = states
        self._states += len(states) + _MOVE_STATES


class JavaPattern:
    """A compiled expression. Thread-safe; it can be pickled. Raises ValueError."""

    def __init__(self, regex: str) -> None:
        self.regex = regex
        self._regexes: tuple[str, ...] = ()
        self._most_work = _MOST_WORK
        self._compile_all(parse_java(regex))

    @classmethod
    def any_of(cls, regexes: tuple[str, ...], most_work: int) -> "JavaPattern":
        """Compile the alternatives of several expressions into one.

        Args:
            most_work: the bound of `matches`, in steps; a thousand take half a millisecond.

        Raises:
            ValueError: as in the constructor, or they are too large together.
        """
        made = cls.__new__(cls)
        made._regexes = regexes
        made.regex = "|".join(f"(?:{each})" for each in regexes)
        made._most_work = most_work
        made._compile_all(Choice([parse_java(each) for each in regexes]))
        return made

    def _compile_all(self, node: Node) -> None:
        self._steps: list[_Step] = []
        self._has_places = False
        self._start = self._program(node)
        self._moves = _Moves()
        self._known: dict[str, bool] = {}

    def __reduce__(self) -> tuple[Callable[..., "JavaPattern"], tuple[Any, ...]]:
        if self._regexes:
            return _any_of, (self._regexes, self._most_work)
        return compile_java, (self.regex,)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches. Bounded, in any case. Raises RegexTooCostlyError."""
        known = self._known.get(text)
        if known is None:
            run = _MatchRun(self._steps, text, self._moves, self._has_places, self._most_work)
            known = run.matches(self._start)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known = {}
            self._known[text] = known
        return known

    # -- compiling ------------------------------------------------------------------------------

    def _program(self, node: Node) -> int:
        end = self._write(_Step())
        return self._compile(node, end)

    def _write(self, step: _Step) -> int:
        if len(self._steps) >= _MOST_STEPS:
            raise ValueError("it is too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, following: int) -> int:
        if isinstance(node, Set):
            return self._write(_Step((following,), character=node.allows))
        if isinstance(node, At):
            self._has_places = True
            return self._write(_Step((following,), place=node.holds))
        if isinstance(node, Lookaround):
            self._has_places = True
            part = _SubProgram(self._program(node.node), node.ahead, node.negated)
            return self._write(_Step((following,), part=part))
        if isinstance(node, Choice):
            ways = tuple(self._compile(each, following) for each in node.branches)
            return self._write(_Step(ways))
        if isinstance(node, Sequence):
            for each in reversed(node.parts):
                following = self._compile(each, following)
            return self._write(_Step((following,)))
        return self._compile_repeat(node, following)

    def _compile_repeat(self, node: Repeat, following: int) -> int:
        start = following
        if node.most == 0:  # a step all the same: else this could be repeated for ever
            return self._write(_Step((following,)))
        if node.most is None:
            start = self._write(_Step())  # back to here after each time
            again = self._compile(node.node, start)
            self._steps[start] = _Step((again, following))
        else:
            for _ in range(node.most - node.least):
                once = self._compile(node.node, start)
                start = self._write(_Step((once, following)))
        for _ in range(node.least):
            start = self._compile(node.node, start)
        return start


@dataclass(slots=True)
class _MatchRun:
    """One match: sets of steps, advanced by each character."""

    steps: list[_Step]
    text: str
    moves: _Moves
    has_places: bool
    most_work: int
    seen: dict[tuple[int, int], bool] = field(default_factory=dict)
    allowed: dict[tuple[Test, str], bool] = field(default_factory=dict)
    work: int = 0

    def matches(self, start: int) -> bool:
        states = self.moves.get(_BEGINNING)
        if states is None:
            states = self._spread([start], 0)
            if not self.has_places:
                self.moves.keep(_BEGINNING, states)
        for place, character in enumerate(self.text):
            if not states:
                return False
            states = self._move(states, character, place + 1)
        return self._is_over(states)

    def _move(self, states: frozenset[int], character: str, place: int) -> frozenset[int]:
        # Where no step asks for its place, a move is the same wherever it is made.
        key = (states, character)
        found = None if self.has_places else self.moves.get(key)
        if found is None:
            on: list[int] = []
            for each in states:
                step = self.steps[each]
                if step.character is not None and self._allows(step.character, character):
                    on += step.ways
            found = self._spread(on, place)
            self._spend(len(states))
            if not self.has_places:
                self.moves.keep(key, found)
        return found

    def _allows(self, test: Test, character: str) -> bool:
        """Whether a test allows a character, found out once: a class may be long."""
        found = self.allowed.get((test, character))
        if found is None:
            found = self.allowed[test, character] = test(character)
        return found

    def _spread(self, todo: list[int], place: int) -> frozenset[int]:
        reached: set[int] = set()
        while todo:
            number = todo.pop()
            if number in reached:
                continue
            reached.add(number)
            step = self.steps[number]
            if step.character is None and self._leads_on(number, step, place):
                todo += step.ways
        self._spend(len(reached))
        return frozenset(
            n for n in reached if self.steps[n].character is not None or not self.steps[n].ways
        )

    def _leads_on(self, number: int, step: _Step, place: int) -> bool:
        if step.place is not None:
            return step.place(self.text, place)
        return step.part is None or self._looks(number, step.part, place)

    def _looks(self, number: int, part: _SubProgram, place: int) -> bool:
        known = self.seen.get((number, place))
        if known is None:
            found = self._ahead(part, place) if part.ahead else self._behind(part, place)
            known = self.seen[number, place] = found != part.negated
        return known

    def _ahead(self, part: _SubProgram, place: int) -> bool:
        states = self._spread([part.start], place)
        while states and not self._is_over(states) and place < len(self.text):
            place += 1
            states = self._move(states, self.text[place - 1], place)
        return self._is_over(states)

    def _behind(self, part: _SubProgram, end: int) -> bool:
        """Whether it matches from any earlier position up to here."""
        states = self._spread([part.start], 0)
        for place in range(end):
            states = self._move(states, self.text[place], place + 1)
            states |= self._spread([part.start], place + 1)
        return self._is_over(states)

    def _is_over(self, states: frozenset[int]) -> bool:
        return any(not self.steps[each].ways for each in states)

    def _spend(self, work: int) -> None:
        self.work += work
        if self.work > self.most_work:
            raise RegexTooCostlyError(f"matching {self.text[:50]!r} takes too much work")


@lru_cache(maxsize=200)
def compile_java(regex: str) -> JavaPattern:
    """Compile an expression; cached, with the results that it remembers. Raises ValueError."""
    return JavaPattern(regex)


def _any_of(regexes: tuple[str, ...], most_work: int) -> JavaPattern:
    """What unpickling calls: a function, since Twisted pickles methods in a way of its own."""
    return JavaPattern.any_of(regexes, most_work)
