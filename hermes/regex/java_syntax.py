r"""Parses Java's regular expressions into a tree.

Java's dialect is parsed as Java parses it: a translation could mean something else by accident.

Supported: literals, `.`, `^ $`, `\A \z \Z \b \B`, classes, `\d \s \w` (ASCII, as in Java), ASCII's
`\p{...}`, groups, which capture nothing, `(?i)`, `(?s)`, `(?m)`, lookahead and lookbehind, greedy
and lazy repetition. Refused, as matching without backtracking can't have them: back references,
atomic groups, possessive repetition. Refused, as Java's versions differ or Unicode's tables are
needed: classes within classes, `\p{L}` and its like, `\G \R \X \N \h \v`.
"""

from collections.abc import Callable
from string import ascii_letters, digits, hexdigits, punctuation
from typing import Final, NamedTuple

Test = Callable[[str], bool]
_WORD: Final = frozenset(ascii_letters + digits + "_")
_SPACE: Final = frozenset(" \t\n\x0b\f\r")
_LINE_ENDS: Final = frozenset("\n\r\x85\u2028\u2029")
_POSIX: Final = {
    "Lower": frozenset(map(chr, range(97, 123))),
    "Upper": frozenset(map(chr, range(65, 91))),
    "ASCII": frozenset(map(chr, range(128))),
    "Alpha": frozenset(ascii_letters),
    "Digit": frozenset(digits),
    "Alnum": frozenset(ascii_letters + digits),
    "Punct": frozenset(punctuation),
    "Graph": frozenset(ascii_letters + digits + punctuation),
    "Print": frozenset(ascii_letters + digits + punctuation + " "),
    "Blank": frozenset(" \t"),
    "Cntrl": frozenset(map(chr, [*range(32), 127])),
    "XDigit": frozenset(hexdigits),
    "Space": _SPACE,
}
_CLASSES: Final = {"d": frozenset(digits), "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}

# Far above what people write.
_MOST_REPEATED: Final = 1_000
_DEEPEST: Final = 50


class Set(NamedTuple):
    allows: Test


class Sequence(NamedTuple):
    parts: "list[Node]"


class Choice(NamedTuple):
    branches: "list[Node]"


class Repeat(NamedTuple):
    """So many times; `most` is None for any number."""

    node: "Node"
    least: int
    most: int | None


class At(NamedTuple):
    """An assertion about a position between characters."""

    holds: Callable[[str, int], bool]


class Lookaround(NamedTuple):
    node: "Node"
    ahead: bool
    negated: bool


Node = Set | Sequence | Choice | Repeat | At | Lookaround


class _Flags(NamedTuple):
    ignores_case: bool = False
    multiline: bool = False
    dot_all: bool = False


class _Parser:
    """A recursive descent parser. Raises ValueError."""

    def __init__(self, regex: str) -> None:
        self._regex = _without_quotes(regex)
        self._position = 0
        self._depth = 0
        self._names: set[str] = set()

    def parse(self) -> Node:
        node, _ = self._choice(_Flags())
        if self._peek():
            raise ValueError("a closing parenthesis without an opening one")
        return node

    def _peek(self, length: int = 1) -> str:
        return self._regex[self._position : self._position + length]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise ValueError("it ends too early")
        self._position += 1
        return character

    def _skip(self, text: str) -> bool:
        found = self._regex.startswith(text, self._position)
        self._position += len(text) if found else 0
        return found

    def _choice(self, flags: _Flags) -> tuple[Node, _Flags]:
        branches: list[Node] = []
        while True:
            parts: list[Node] = []
            while self._peek() not in ("", "|", ")"):
                if self._peek(2) == "(?" and (changed := self._flags(flags)) is not None:
                    flags = changed
                    continue
                parts.append(self._repeated(self._atom(flags)))
            branches.append(parts[0] if len(parts) == 1 else Sequence(parts))
            if not self._skip("|"):
                return (branches[0] if len(branches) == 1 else Choice(branches)), flags

    def _flags(self, flags: _Flags) -> _Flags | None:
        """Parse `(?i)`; None where there is a group instead."""
        end = self._regex.find(")", self._position)
        letters = self._regex[self._position + 2 : max(end, 0)]
        if not letters or set(letters) - set("ims-"):
            return None
        self._position = end + 1
        return _changed(flags, letters)

    def _repeated(self, node: Node) -> Node:
        if self._skip("*"):
            least, most = 0, None
        elif self._skip("+"):
            least, most = 1, None
        elif self._skip("?"):
            least, most = 0, 1
        elif self._skip("{"):
            least, most = self._counts()
        else:
            return node
        if self._skip("+"):
            raise ValueError("possessive repetition is Java's alone")
        self._skip("?")  # lazy: for a whole match the same
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise ValueError("a repetition of a repetition")
        return Repeat(node, least, most)

    def _counts(self) -> tuple[int, int | None]:
        end = self._regex.find("}", self._position)
        low, comma, high = self._regex[self._position : max(end, 0)].partition(",")
        self._position = end + 1
        if not (low.isascii() and low.isdecimal()) or (high and not high.isdecimal()):
            raise ValueError("expected {N}, {N,} or {N,M}")
        if max(len(low), len(high)) > 4 or max(int(low), int(high or 0)) > _MOST_REPEATED:
            raise ValueError(f"more than {_MOST_REPEATED} repetitions")
        most = int(high) if high else None if comma else int(low)
        if most is not None and most < int(low):
            raise ValueError("a repetition from more to less")
        return int(low), most

    def _atom(self, flags: _Flags) -> Node:
        character = self._take()
        if character == "(":
            return self._group(flags)
        if character == "[":
            return Set(_folded(self._class(flags), flags))
        if character == "\\":
            return self._escape(flags)
        if character == ".":
            return Set(lambda _: True) if flags.dot_all else Set(_LINE_ENDS.isdisjoint)
        if character == "^":
            return At(_begins_line if flags.multiline else _begins)
        if character == "$":
            return At(_ends_line if flags.multiline else _ends_but_for_a_line_end)
        if character in "*+?{":
            raise ValueError(f"nothing precedes {character!r}")
        return Set(_folded(character.__eq__, flags))

    def _group(self, flags: _Flags) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} groups within each other")
        look: tuple[bool, bool] | None = None
        if self._skip("?"):
            for text, kind in _LOOKS.items():
                if self._skip(text):
                    look = kind
                    break
            else:
                flags = self._opening(flags)
        node, _ = self._choice(flags)
        if not self._skip(")"):
            raise ValueError("a parenthesis is not closed")
        self._depth -= 1
        return node if look is None else Lookaround(node, *look)

    def _opening(self, flags: _Flags) -> _Flags:
        if self._skip("<"):
            name = self._until(">")
            if not (name.isascii() and name.isalnum() and name[0].isalpha()):
                raise ValueError(f"a group can't be called {name[:20]!r}")
            if name in self._names:
                raise ValueError(f"two groups are called {name[:20]!r}")
            self._names.add(name)
            return flags
        letters = self._until(":")
        if set(letters) - set("ims-"):
            raise ValueError(f"(?{letters[:10]} is only Java's, or invalid")
        return _changed(flags, letters)

    def _until(self, mark: str) -> str:
        end = self._regex.find(mark, self._position)
        if end < 0:
            raise ValueError("a group that begins with (? and doesn't go on")
        found = self._regex[self._position : end]
        self._position = end + 1
        return found

    def _escape(self, flags: _Flags) -> Node:
        place = _PLACES.get(self._peek())
        if place is not None:
            self._position += 1
            return At(place)
        found = self._escaped()
        return Set(_folded(found.__eq__, flags) if isinstance(found, str) else found)

    def _escaped(self) -> str | Test:
        """Parse what follows a backslash: a character, or a class of them."""
        letter = self._take()
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.lower() in _CLASSES:
            chosen = _CLASSES[letter.lower()]
            return chosen.__contains__ if letter.islower() else _none_of(chosen)
        if letter in "pP" and self._skip("{"):
            name = self._until("}").removeprefix("Is")
            if name not in _POSIX:
                raise ValueError(f"the class {name[:20]!r} is Java's alone")
            return _POSIX[name].__contains__ if letter == "p" else _none_of(_POSIX[name])
        if letter in "xu":
            code = self._peek(2 if letter == "x" else 4)
            if len(code) != (2 if letter == "x" else 4) or set(code) - set(hexdigits):
                raise ValueError(f"expected hexadecimal digits behind \\{letter}")
            self._position += len(code)
            return chr(int(code, 16))
        if letter in _WORD and letter != "_":
            raise ValueError(f"\\{letter} is only Java's, or invalid")
        return letter

    def _class(self, flags: _Flags) -> Test:
        negated = self._skip("^")
        tests: list[Test] = []
        while not (self._peek() == "]" and tests):
            if self._peek() == "[" or self._peek(2) == "&&":
                raise ValueError("classes within classes are Java's alone")
            first = self._escaped() if self._skip("\\") else self._take()
            if self._peek() == "-" and self._peek(2) != "-]":
                self._position += 1
                last = self._escaped() if self._skip("\\") else self._take()
                if not isinstance(first, str) or not isinstance(last, str) or last in "[":
                    raise ValueError("a range of what are no characters")
                tests.append(_between(first, last))
            else:
                tests.append(first.__eq__ if isinstance(first, str) else first)
        self._position += 1
        inside = _folded(_any_of(tests), flags)
        return (lambda character: not inside(character)) if negated else inside


def parse_java(regex: str) -> Node:
    """Parse an expression. Raises ValueError."""
    return _Parser(regex).parse()


def _without_quotes(regex: str) -> str:
    r"""Replace \Q...\E by a backslash before each character, as Java does."""
    parts: list[str] = []
    while regex:
        plain, mark, regex = regex.partition("\\")
        parts.append(plain)
        if mark and regex.startswith("Q"):
            quoted, _, regex = regex[1:].partition("\\E")
            parts += [each if each in _WORD or ord(each) > 127 else f"\\{each}" for each in quoted]
        elif mark:
            parts += [mark, regex[:1]]
            regex = regex[1:]
    return "".join(parts)


def _changed(flags: _Flags, letters: str) -> _Flags:
    on, _, off = letters.partition("-")
    return _Flags(
        *(
            (before or letter in on) and letter not in off
            for before, letter in zip(flags, "ims", strict=True)
        )
    )


def _folded(test: Test, flags: _Flags) -> Test:
    """Ignore the case of ASCII's letters, if the flags say so."""
    if not flags.ignores_case:
        return test
    return lambda c: test(c) or (c.isascii() and test(c.swapcase()))


def _none_of(characters: frozenset[str]) -> Test:
    return lambda character: character not in characters


def _any_of(tests: list[Test]) -> Test:
    return lambda character: any(test(character) for test in tests)


def _between(first: str, last: str) -> Test:
    if last < first:
        raise ValueError(f"a range from {first!r} down to {last!r}")
    return lambda character: first <= character <= last


def _begins(_text: str, place: int) -> bool:
    return place == 0


def _ends(text: str, place: int) -> bool:
    return place == len(text)


def _ends_but_for_a_line_end(text: str, place: int) -> bool:
    rest = text[place:]
    if place and text[place - 1 : place + 1] == "\r\n":
        return False  # within the one line end
    return not rest or rest == "\r\n" or rest in _LINE_ENDS


def _begins_line(text: str, place: int) -> bool:
    if place == 0:
        return True
    return (
        place < len(text)
        and text[place - 1] in _LINE_ENDS
        and text[place - 1 : place + 1] != "\r\n"
    )


def _ends_line(text: str, place: int) -> bool:
    if place == len(text):
        return True
    return text[place] in _LINE_ENDS and text[max(place - 1, 0) : place + 1] != "\r\n"


def _at_word(text: str, place: int) -> bool:
    before = place > 0 and text[place - 1] in _WORD
    return before != (place < len(text) and text[place] in _WORD)


def _not_at_word(text: str, place: int) -> bool:
    return not _at_word(text, place)


_LOOKS: Final = {"=": (True, False), "!": (True, True), "<=": (False, False), "<!": (False, True)}
_PLACES: Final = {
    "A": _begins,
    "z": _ends,
    "Z": _ends_but_for_a_line_end,
    "b": _at_word,
    "B": _not_at_word,
}
