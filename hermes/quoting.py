"""Shows untrusted text to people: shortened, and without anything that a terminal obeys.

Names, payloads and nodes come from anybody. In a log line, an error or a table they must not begin
a line of their own, move the cursor, reverse the reading direction or hide a character; and a
megabyte of them says no more than their first words. Imports nothing from Hermes.
"""

import shlex
from collections.abc import Iterable

__all__ = ["QUOTED_LENGTH", "printable", "quoted", "shell_line"]

#: How much of an untrusted value an error quotes: enough to recognise it.
QUOTED_LENGTH = 80


def printable(text: str, max_length: int | None = None) -> str:
    r"""Make text harmless for terminals and logs.

    Args:
        max_length: the most characters of it that are shown; None shows all.

    Returns:
        The text, with an escape (`\n`, `\x1b`, `\u202e`) for every character that Unicode
        doesn't count as printable: controls, directions, zero widths, lone surrogates. If it was
        cut, it ends with the number of characters left out.
    """
    shown = text if max_length is None else text[:max_length]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else _escape(c) for c in shown)
    cut = len(text) - max_length if max_length is not None else 0
    return f"{shown}... ({cut} more)" if cut > 0 else shown


def quoted(value: object, max_length: int = QUOTED_LENGTH) -> str:
    """Quote an untrusted value in an error: as `repr` does, but shortened.

    Args:
        value: text or bytes; anything else is shown by its `repr`, which must not be huge.
        max_length: the most characters or bytes of it that are shown.
    """
    if not isinstance(value, str | bytes | bytearray | memoryview):
        return printable(repr(value), max_length)
    shown = value[:max_length]
    cut = len(value) - len(shown)
    text = repr(bytes(shown) if isinstance(shown, memoryview | bytearray) else shown)
    return f"{text}... ({cut} more)" if cut else text


def shell_line(words: Iterable[str]) -> str:
    """Write a command line that a shell splits into these words again, whatever they hold.

    A word that can't be shown as it is (see `printable`) is quoted as `$'...'`, its bytes as octal
    escapes, which bash, zsh and ksh read in every locale.
    """
    return " ".join(
        shlex.quote(each) if each.isprintable() else _shell_escaped(each) for each in words
    )


def _shell_escaped(word: str) -> str:
    shown = "".join(
        character
        if character.isprintable() and character not in "'\\"
        else "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
        for character in word
    )
    return f"$'{shown}'"


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name that isn't UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
