"""Tokens of an OpenID provider: what it has signed for this cluster is taken, while it lasts."""

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from oidc_issuer import AUDIENCE, Issuer, running_issuer

from hermes.errors import ConfigError, NotAuthenticatedError
from hermes.interfaces import TokenVerifierSettings
from hermes.plugins.tokens import oidc
from hermes.plugins.tokens.oidc import OidcVerifier


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(oidc, "time", clock)
    return clock


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


def made(issuer: Issuer, /, **options: Any) -> OidcVerifier:
    given = {"issuer": issuer.url, "audience": AUDIENCE, **options}
    return OidcVerifier(TokenVerifierSettings({k: v for k, v in given.items() if v is not None}))


def test_who_holds_a_token_is_told(issuer: Issuer) -> None:
    verifier = made(issuer, groups_claim="roles", name_claim="email")
    token = issuer.token("x", email="alice", roles=["staff"], exp=time.time() + 100)
    holder = verifier.verify(token)
    assert (holder.name, holder.groups) == ("alice", {"staff"})
    assert 90 < holder.life_seconds <= 100
    holder = made(issuer).verify(issuer.token("alice", aud=["other", AUDIENCE]))
    assert (holder.name, holder.groups) == ("alice", frozenset())


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://other.example"}, "of another issuer"),
        ({"iss": None}, "of another issuer"),
        ({"aud": "other"}, "for another audience"),
        ({"aud": None}, "for another audience"),
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "until when"),
        ({"exp": "soon"}, "until when"),
        ({"nbf": 4_000_000_000}, "not valid yet"),
        ({"sub": None}, "whose it is"),
        ({"sub": ""}, "whose it is"),
        ({"sub": 7}, "whose it is"),
        ({"roles": "staff"}, "not a list of texts"),
    ],
)
def test_claims_decide(issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    verifier = made(issuer, groups_claim="roles")
    with pytest.raises(NotAuthenticatedError, match=reason):
        verifier.verify(issuer.token(**{"subject": "alice", **claims}))


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def part(value: dict[str, Any]) -> str:
    return encoded(json.dumps(value).encode())


def test_only_the_issuers_signature_counts(issuer: Issuer) -> None:
    verifier, claims = made(issuer), issuer.claims_of("alice")
    token = issuer.token("alice")
    verifier.verify(token)
    public = issuer.keys[0].as_pem(private=False)
    by_hmac = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(claims)}"
    stranger = RSAKey.generate_key(2048, {"kid": "first"})
    forged = [
        f"{part({'alg': 'none'})}.{part(claims)}.",
        f"{part({'alg': 'none', 'kid': 'first'})}.{part(claims)}.",
        f"{by_hmac}.{encoded(hmac.digest(public, by_hmac.encode(), 'sha256'))}",
        jwt.encode({"alg": "RS256", "kid": "first"}, claims, stranger, algorithms=["RS256"]),
        ".".join((*token.split(".")[:2], "AAAA")),
        ".".join((token.split(".")[0], part({**claims, "sub": "root"}), token.split(".")[2])),
        "",
        "a.b",
        "a.b.c.d.e",
    ]
    for each in forged:
        with pytest.raises(NotAuthenticatedError, match="not signed by a key that counts"):
            verifier.verify(each)


def test_keys_may_change(issuer: Issuer, clock: Clock) -> None:
    verifier = made(issuer)
    verifier.verify(issuer.token("alice"))
    issuer.rotate()
    clock.ahead = 11
    assert verifier.verify(issuer.token("alice")).name == "alice"
    assert issuer.asked == 2


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA", "kid": "other"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "other"},
        {"kty": "RSA", "kid": "other"},
        {"kty": "OKP", "kid": "other"},
        {"kty": ["RSA"]},
        "a key",
    ],
)
def test_keys_that_are_of_no_use_leave_the_others_in_use(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    """As RFC 7517 has it, section 5: a provider may have keys for whatever it likes."""
    own = issuer.page("/keys")
    assert own is not None
    keys = {"keys": [other, *own["keys"]]}
    page = issuer.page
    monkeypatch.setattr(issuer, "page", lambda path: keys if path == "/keys" else page(path))
    assert made(issuer).verify(issuer.token("alice")).name == "alice"


def test_a_provider_without_keys_is_one_that_can_not_be_asked(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = issuer.page
    monkeypatch.setattr(issuer, "page", lambda path: {} if path == "/keys" else page(path))
    with pytest.raises(OSError, match="can't be read"):
        made(issuer).verify(issuer.token("alice"))


def test_strangers_can_not_have_the_keys_read_all_the_time(issuer: Issuer, clock: Clock) -> None:
    verifier = made(issuer)
    verifier.verify(issuer.token("alice"))
    wrong = f"{part({'alg': 'RS256', 'kid': 'nobody-has-it'})}.{part({})}.AAAA"
    for ahead in (0, 11, 12, 13, 25):
        clock.ahead = ahead
        with pytest.raises(NotAuthenticatedError):
            verifier.verify(wrong)
    assert issuer.asked == 3


def test_keys_outlast_a_provider_that_is_away(issuer: Issuer, clock: Clock) -> None:
    verifier = made(issuer)
    issuer.answers = False
    for reason in ("404", "a moment ago"):
        with pytest.raises(OSError, match=reason):
            verifier.verify(issuer.token("alice"))
    issuer.answers, clock.ahead = True, 11
    token = issuer.token("alice", exp=time.time() + 9000)
    verifier.verify(token)
    issuer.answers, clock.ahead = False, 4000
    assert verifier.verify(token).name == "alice"


def test_a_provider_that_calls_itself_otherwise_is_not_believed(issuer: Issuer) -> None:
    verifier = made(issuer, issuer=f"{issuer.url}/")
    with pytest.raises(OSError, match="calls itself otherwise"):
        verifier.verify(issuer.token("alice"))


def test_a_provider_that_sends_elsewhere_without_https_is_not_believed(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = oidc.urlopen

    def redirected(*arguments: Any, **options: Any) -> Any:
        answer = asked(*arguments, **options)
        answer.url = "http://elsewhere.example/keys"
        return answer

    monkeypatch.setattr(oidc, "urlopen", redirected)
    with pytest.raises(OSError, match="without https"):
        made(issuer).verify(issuer.token("alice"))


def test_the_keys_may_be_named(issuer: Issuer) -> None:
    verifier = made(issuer, issuer="https://idp.example", keys=f"{issuer.url}/keys")
    assert verifier.verify(issuer.token("alice", iss="https://idp.example")).name == "alice"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"issuer": None}, "issuer: expected a text"),
        ({"issuer": "http://idp.example"}, "issuer: expected a URL that begins with https"),
        ({"keys": "file:///etc/passwd"}, "keys: expected a URL that begins with https"),
        ({"audience": None}, "audience: expected a text, or a list of them"),
        ({"audience": []}, "audience: expected a text, or a list of them"),
        ({"algorithms": ["HS256"]}, "algorithms: HS256 does not count"),
        ({"algorithms": "none"}, "algorithms: none does not count"),
        ({"leeway_seconds": -1}, "leeway_seconds: expected 0 to 300 seconds"),
        ({"isuer": "x"}, "isuer: there is no such option"),
    ],
)
def test_wrong_options_are_named(issuer: Issuer, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        made(issuer, **options)
