import pytest

from hermes.cli.formats import ConsumedMessage, MessageFormat
from hermes.cli.terminal import harmless

MESSAGE = ConsumedMessage("clicks", 3, 1000, 1015, b"a\xffb")


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("", b""),
        ("%s", b"a\xffb"),
        (r"%s\n", b"a\xffb\n"),
        (r"%t [%p] %o-%O: %S bytes\n", b"clicks [3] 1000-1015: 3 bytes\n"),
        ("%R", b"\x00\x00\x00\x03"),
        ("%k|%K|%T|%h", b"|-1|-1|"),
        (r"100%%\t\r\\\0\x41\n", b"100%\t\r\\\x00A\n"),
        ("é\n", b"\xc3\xa9\n"),
        ("\udcff", b"\xff"),  # a byte of the command line that is no UTF-8
    ],
)
def test_tokens_and_escapes(template, rendered):
    assert MessageFormat(template).render(MESSAGE) == rendered


@pytest.mark.parametrize("template", ["%z", "50%", r"\q", "\\", r"\x4"])
def test_an_unknown_token_or_escape_is_refused_with_those_there_are(template):
    with pytest.raises(ValueError, match=r"is not an? (token|escape) of a format; known are "):
        MessageFormat(template)


def test_only_what_a_message_brings_is_changed_for_a_terminal():
    message = MESSAGE._replace(topic="a\u202eb", payload=b"\x1bc" * 2337)
    rendered = MessageFormat(r"\x1b[1m%t\x1b[0m %R %S", harmless).render(message)
    assert rendered == b"\x1b[1ma\\u202eb\x1b[0m \\x00\\x00\\x12B 4674"
