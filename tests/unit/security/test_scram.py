"""SCRAM: the RFCs' exchanges, PostgreSQL's verifier, what is refused, and what nobody is told."""

import gc
import json
import sys
from base64 import b64decode
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import scramp

from hermes.errors import ConfigError, NotAuthenticatedError
from hermes.interfaces import User, Verifier
from hermes.security.passwords import MECHANISMS, MOST_ITERATIONS, make_verifier, verify_password
from hermes.security.scram import ScramClient, ScramServer
from hermes.security.users import Users

# RFC 7677, section 3: user "user", password "pencil".
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

RECORDED = json.loads((Path(__file__).parents[2] / "vectors" / "scram.json").read_text("utf-8"))


def users(password: str = "pencil", mechanism: str = MECHANISMS[0]) -> Users:
    user = User("user", (make_verifier(password, mechanism, 4096, salt=SALT),))
    return Users({"user": user}, bytes(32), {})


@pytest.mark.parametrize("exchange", RECORDED["exchanges"], ids=lambda each: each["source"])
def test_both_halves_say_what_others_have_said(exchange: dict[str, Any]) -> None:
    first, challenge, answer, final = (each.encode() for each in exchange["messages"])
    user, password, mechanism = (exchange[key] for key in ("user", "password", "mechanism"))
    nonce = first.decode().partition(",r=")[2]
    client = ScramClient(user, password, mechanism, nonce=nonce)
    assert client.first() == first
    assert client.answer(challenge) == answer
    client.verify(final)
    known = Users.parse(f"{user}:{exchange['verifier']}\n".encode())
    theirs = challenge.decode().partition(",")[0].removeprefix(f"r={nonce}")
    server = ScramServer(mechanism, known, nonce=theirs)
    assert server.challenge(first) == challenge
    found, said = server.finish(answer)
    assert (found.name, said) == (user, final)
    assert verify_password(known, user, password) is found
    assert verify_password(known, user, f"{password}x") is None


@pytest.mark.parametrize(
    ("password", "text"),
    [(each["password"], each["verifier"]) for each in RECORDED["exchanges"]]
    + [(each["password"], each["text"]) for each in RECORDED["verifiers"]],
)
def test_a_verifier_is_the_one_that_others_have_made(password: str, text: str) -> None:
    theirs = Verifier.parse(text)
    ours = make_verifier(password, theirs.mechanism, theirs.iterations, salt=theirs.salt)
    assert ours == theirs
    assert ours.text == text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_half_talks_to_the_others_of_scramp(mechanism: str) -> None:
    known = users(mechanism=mechanism)
    theirs = scramp.ScramClient([mechanism], "user", "pencil")
    server = ScramServer(mechanism, known)
    theirs.set_server_first(server.challenge(theirs.get_client_first().encode()).decode())
    theirs.set_server_final(server.finish(theirs.get_client_final().encode())[1].decode())
    kind = scramp.ScramMechanism(mechanism)
    keys = kind.make_auth_info("pencil", iteration_count=4096, salt=SALT)
    their_server, client = (
        kind.make_server({"user": keys}.get),
        ScramClient("user", "pencil", mechanism),
    )
    their_server.set_client_first(client.first().decode())
    their_server.set_client_final(client.answer(their_server.get_server_first().encode()).decode())
    client.verify(their_server.get_server_final().encode())


def talk(known: Users, user: str, password: str, mechanism: str = MECHANISMS[0]) -> User:
    client, server = ScramClient(user, password, mechanism), ScramServer(mechanism, known)
    found, final = server.finish(client.answer(server.challenge(client.first())))
    client.verify(final)
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["pencil", "Ünïcödé ß", "\u2168", "x" * 1000])
def test_whoever_knows_the_password_is_the_user(mechanism: str, password: str) -> None:
    assert talk(users(password, mechanism), "user", password, mechanism).name == "user"


def test_passwords_are_compared_as_saslprep_writes_them() -> None:
    assert talk(users("IX"), "user", "\u2168").name == "user"
    assert talk(users(), "us\u00ader", "pencil").name == "user"


@pytest.mark.parametrize(("user", "password"), [("user", "pen"), ("nobody", "pencil"), ("U", "p")])
def test_a_wrong_user_and_a_wrong_password_are_told_the_same(user: str, password: str) -> None:
    with pytest.raises(NotAuthenticatedError, match=r"^the user or the password is wrong$"):
        talk(users(), user, password)


def test_a_user_without_a_verifier_of_the_mechanism_is_like_nobody() -> None:
    with pytest.raises(NotAuthenticatedError, match=r"^the user or the password is wrong$"):
        talk(users(), "user", "pencil", "SCRAM-SHA-512")
    nameless = Users({"user": User("user", groups=frozenset("g"))}, bytes(32), {})
    with pytest.raises(NotAuthenticatedError, match=r"^the user or the password is wrong$"):
        talk(nameless, "user", "pencil")


def challenge(known: Users, user: str, mechanism: str = MECHANISMS[0]) -> dict[str, str]:
    server = ScramServer(mechanism, known)
    text = server.challenge(ScramClient(user, "x", mechanism).first()).decode()
    return dict(part.split("=", 1) for part in text.split(","))  # type: ignore[misc]


def test_nobody_has_the_same_salt_each_time_and_each_has_another() -> None:
    known = users()
    first, again = challenge(known, "nobody"), challenge(known, "nobody")
    assert (first["s"], first["i"]) == (again["s"], again["i"])
    assert first["r"][64:] != again["r"][64:]
    assert len({challenge(known, f"nobody{n}")["s"] for n in range(50)}) == 50
    assert len({challenge(known, "nobody", each)["s"] for each in MECHANISMS}) == 2


def test_nobody_looks_as_most_users_do() -> None:
    known = Users.none()
    for name, iterations in (("a", 5000), ("b", 6000), ("c", 6000)):
        known = known.with_user(name, "x", iterations=iterations)
    assert challenge(known, "nobody")["i"] == "6000"
    assert len(b64decode(challenge(known, "nobody")["s"])) == len(
        b64decode(challenge(known, "b")["s"])
    )


def test_a_file_read_again_gives_nobody_the_same_salt() -> None:
    known = Users.none().with_user("a", "x", iterations=4096)
    again = Users.parse(known.with_user("b", "x", iterations=4096).encode())
    assert challenge(known, "nobody")["s"] == challenge(again, "nobody")["s"]


class Calls:
    """Every call of a function, in Python or in C, while it is active; no garbage is collected."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __enter__(self) -> "list[str]":
        gc.disable()
        sys.setprofile(self._note)
        return self.names

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.names.append(frame.f_code.co_qualname)
        elif event == "c_call":
            self.names.append(getattr(argument, "__qualname__", repr(argument)))


def calls_of_a_failure(known: Users, user: str) -> list[str]:
    client, server = ScramClient(user, "wrong"), ScramServer("SCRAM-SHA-256", known)
    first, calls = client.first(), Calls()
    with calls as names:
        answer = server.challenge(first)
    final = client.answer(answer)
    with calls, pytest.raises(NotAuthenticatedError):
        server.finish(final)
    return names


def test_for_nobody_the_same_is_done_as_for_a_wrong_password() -> None:
    known = users()
    calls_of_a_failure(known, "user")  # what is made once only
    # Names of the same length: SASLprep looks at each character.
    wrong, nobody = calls_of_a_failure(known, "user"), calls_of_a_failure(known, "ruse")
    assert wrong == nobody
    assert len(wrong) > 100


def test_a_clear_password_is_checked_with_the_same_work_for_nobody() -> None:
    known, calls = users(), []
    verify_password(known, "user", "wrong")
    for name in ("user", "ruse"):
        with Calls() as names:
            assert verify_password(known, name, "wrong") is None
        calls.append(names)
    assert calls[0] == calls[1]
    assert any("pbkdf2" in name for name in calls[0])


def test_a_clear_password_is_the_users_or_not() -> None:
    known = users()
    assert verify_password(known, "user", "pencil") is known.find("user")
    for name, password in (("user", "pen"), ("nobody", "pencil"), ("user", ""), ("user", "\0")):
        assert verify_password(known, name, password) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=admin,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=\x00,r=x",
        b"n,,m=1,n=user,r=x",
        b"n,,n=user,r=" + b"x,y=" * 500,
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", users())
    with pytest.raises(NotAuthenticatedError, match="not a message of SCRAM"):
        server.challenge(message)


@pytest.mark.parametrize(
    "changed",
    [
        b"",
        b"\xff",
        CLIENT_FINAL.replace(b"c=biws", b"c=eSws"),
        CLIENT_FINAL.replace(b"%hv", b"%hw"),
        CLIENT_FINAL.replace(b"dHzb", b"dHza"),
        CLIENT_FINAL.replace(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p="),
        CLIENT_FINAL.replace(b"p=dHzb", b"p="),
        CLIENT_FINAL + b"AAAA",
        CLIENT_FIRST,
    ],
)
def test_what_is_no_proof_is_refused(changed: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", users(), nonce=SERVER_NONCE)
    server.challenge(CLIENT_FIRST)
    with pytest.raises(NotAuthenticatedError):
        server.finish(changed)


def test_a_proof_before_a_name_and_a_name_after_a_proof_are_refused() -> None:
    server = ScramServer("SCRAM-SHA-256", users(), nonce=SERVER_NONCE)
    with pytest.raises(NotAuthenticatedError):
        server.finish(CLIENT_FINAL)
    server = ScramServer("SCRAM-SHA-256", users(), nonce=SERVER_NONCE)
    server.challenge(CLIENT_FIRST)
    with pytest.raises(NotAuthenticatedError):
        server.challenge(CLIENT_FIRST)


def test_a_failed_proof_can_not_be_followed_by_another() -> None:
    server = ScramServer("SCRAM-SHA-256", users(), nonce=SERVER_NONCE)
    server.challenge(CLIENT_FIRST)
    with pytest.raises(NotAuthenticatedError):
        server.finish(CLIENT_FINAL.replace(b"dHzb", b"dHza"))
    with pytest.raises(NotAuthenticatedError):
        server.finish(CLIENT_FINAL)


class Broken:
    """An authenticator that can't look anybody up."""

    def find(self, name: str) -> User | None:
        raise OSError("the directory is down")

    def disguise(self) -> Any:
        return users().disguise()

    def revision(self) -> object:
        return 0


def test_users_that_can_not_be_looked_up_are_no_refusal() -> None:
    server = ScramServer("SCRAM-SHA-256", Broken())
    with pytest.raises(OSError, match="the directory is down"):
        server.challenge(CLIENT_FIRST)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"e=other-error",
        SERVER_FIRST.replace(b"rOpr", b"rOps"),
        SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=%d" % (MOST_ITERATIONS + 1)),
        SERVER_FIRST.replace(b"i=4096", b"i=99999999999"),
        SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s=W22Z"),
    ],
)
def test_a_client_answers_no_nonsense_and_does_no_absurd_work(message: bytes) -> None:
    client = ScramClient("user", "pencil", nonce=CLIENT_NONCE)
    client.first()
    with pytest.raises(NotAuthenticatedError, match="the broker"):
        client.answer(message)


@pytest.mark.parametrize("final", [b"", b"v=", b"e=invalid-proof", b"v=AAAA", SERVER_FINAL[:-3]])
def test_a_broker_that_does_not_know_the_user_is_not_believed(final: bytes) -> None:
    client = ScramClient("user", "pencil", nonce=CLIENT_NONCE)
    client.first()
    client.answer(SERVER_FIRST)
    with pytest.raises(NotAuthenticatedError, match="not the one it should be"):
        client.verify(final)


@pytest.mark.parametrize("text", ["\x07bell", "\ud800", "\ue000", "a\u0627"])
def test_what_saslprep_does_not_allow_is_a_clear_error(text: str) -> None:
    for setting, user, password in (("user", text, "x"), ("password", "x", text)):
        with pytest.raises(ConfigError) as raised:
            ScramClient(user, password)
        assert raised.value.key == setting
        assert text not in str(raised.value)
        assert raised.value.__cause__ is None
    with pytest.raises(ConfigError, match="password"):
        make_verifier(text)


def test_secrets_are_in_no_repr() -> None:
    made = make_verifier("pencil", iterations=4096)
    for shown in (repr(made), repr(users()), repr(users().disguise()), repr(users().find("user"))):
        assert "stored_key" not in shown
        assert "b'" not in shown
    assert isinstance(made, Verifier)
