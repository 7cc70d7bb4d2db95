"""OAUTHBEARER's first message, as RFC 7628 writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import NotAuthenticatedError
from hermes.security.bearer import BearerMessage, read_bearer


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,\1auth=Bearer vF9dft4qmT\1\1", BearerMessage("", "vF9dft4qmT")),
        (
            b"n,a=user@example.com,\1host=server.example.com\1port=143\1auth=Bearer a.b-c_d==\1\1",
            BearerMessage("user@example.com", "a.b-c_d=="),
        ),
        (b"n,,\1auth=bearer x\1ext=a b c\1\1", BearerMessage("", "x")),
        (b"n,a=a=2Cb=3Dc,\1auth=Bearer x\1\1", BearerMessage("a,b=c", "x")),
    ],
)
def test_a_message_is_read(message: bytes, expected: BearerMessage) -> None:
    assert read_bearer(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,",
        b"n,,\1\1",
        b"n,,\1auth=Bearer x\1",
        b"y,,\1auth=Bearer x\1\1",
        b"n,,\1auth=Basic x\1\1",
        b"n,,\1auth=Bearer \1\1",
        b"n,,\1auth=Bearer a b\1\1",
        b"n,,\1host=x\1\1",
        b"n,,\1auth=Bearer x\0\1\1",
        b"n,,\1auth=Bearer \xff\1\1",
        b"n,,\1auth=Bearer x\1\1x",
    ],
)
def test_others_are_refused(message: bytes) -> None:
    with pytest.raises(NotAuthenticatedError):
        read_bearer(message)


@given(st.binary(max_size=60) | st.text("n,a=\1Bbearer x").map(str.encode))
def test_whatever_comes_is_read_or_refused(message: bytes) -> None:
    try:
        found = read_bearer(message)
    except NotAuthenticatedError:
        return
    assert found.token.encode() in message
