"""Tokens of an OpenID provider: JWTs that it has signed, checked by the keys that it publishes.

The keys are read when the first token comes, again after an hour, and when a token names a key that
isn't among them; never more often than every ten seconds, whatever tokens strangers make up.

Needs the package `joserfc`: the extra `oidc`.
"""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet
from zope.interface import implementer

from hermes.errors import ConfigError, NotAuthenticatedError
from hermes.interfaces import ITokenVerifier, TokenHolder, TokenVerifierSettings

#: Signatures of key pairs: who can check them can't make them.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384")

_OPTIONS: Final = (
    *("issuer", "audience", "keys", "algorithms", "name_claim", "groups_claim", "leeway_seconds"),
)

_TIMEOUT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_KEPT_SECONDS: Final = 3600.0
_PAUSE_SECONDS: Final = 10.0
_LONGEST_LIFE_SECONDS: Final = 7 * 86_400.0


@implementer(ITokenVerifier)
class OidcVerifier:
    """Checks JWTs of one issuer.

    Options:
        issuer: the provider's URL, as its tokens have it in `iss`.
        audience: what tokens for this cluster have in `aud`; or a list of which they have one.
        keys: the URL of the provider's keys (JWKS); unless given, what the provider says itself,
            below `issuer` at `/.well-known/openid-configuration`.
        algorithms: the signatures that count; those of RSA and of P-256 and P-384 unless given.
        name_claim: under which a token has the principal; `sub` unless given.
        groups_claim: under which it has a list of groups; none unless given.
        leeway_seconds: by how much clocks may differ; 30 unless given.

    Raises:
        ConfigError: an option is missing, unknown or no such value.
    """

    def __init__(self, settings: TokenVerifierSettings) -> None:
        options = settings.options
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ConfigError("token_verifier_options", f"{unknown[0]}: there is no such option")
        self._issuer = _url(options, "issuer")
        self._audiences = _texts(options, "audience")
        self._algorithms = _texts(options, "algorithms", _ALGORITHMS)
        if wrong := sorted(set(self._algorithms) - set(_ALGORITHMS)):
            raise ConfigError("token_verifier_options", f"algorithms: {wrong[0]} does not count")
        self._name_claim = _text(options, "name_claim", "sub")
        self._groups_claim = _text(options, "groups_claim", "")
        self._leeway_seconds = _seconds(options, "leeway_seconds", 30)
        self._keys_url = _url(options, "keys") if options.get("keys") else None
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._read_at = self._asked_at = -_KEPT_SECONDS

    def verify(self, token: str) -> TokenHolder:
        """See `ITokenVerifier`."""
        try:
            key_id = jws.extract_compact(token.encode()).headers().get("kid")
            found = jwt.decode(token, self._keys_with(key_id), algorithms=list(self._algorithms))
        except (JoseError, ValueError, TypeError):
            raise NotAuthenticatedError("the token is not signed by a key that counts") from None
        return self._holder(found.claims, time.time())

    def _holder(self, claims: Mapping[str, Any], now: float) -> TokenHolder:
        if claims.get("iss") != self._issuer:
            raise NotAuthenticatedError("the token is of another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(each in self._audiences for each in audiences):
            raise NotAuthenticatedError("the token is for another audience")
        begins, ends = claims.get("nbf", 0), claims.get("exp")
        if not (isinstance(begins, int | float) and isinstance(ends, int | float)):
            raise NotAuthenticatedError("the token does not say until when it is valid")
        if begins > now + self._leeway_seconds:
            raise NotAuthenticatedError("the token is not valid yet")
        if ends <= now - self._leeway_seconds:
            raise NotAuthenticatedError("the token has expired")
        name = claims.get(self._name_claim)
        if not (isinstance(name, str) and name):
            raise NotAuthenticatedError("the token does not say whose it is")
        groups = claims.get(self._groups_claim, []) if self._groups_claim else []
        if not (isinstance(groups, list) and all(isinstance(each, str) for each in groups)):
            raise NotAuthenticatedError("the token's groups are not a list of texts")
        life = min(max(ends - now, 1.0), _LONGEST_LIFE_SECONDS)
        return TokenHolder(name, frozenset(groups), life)

    def _keys_with(self, key_id: object) -> KeySet:
        """The provider's keys, read again if they are old or don't have the one that is meant."""
        with self._lock:
            now = time.monotonic()
            keys = self._keys
            has_it = keys is not None and any(each.kid == key_id for each in keys.keys)
            is_fresh = now - self._read_at < _KEPT_SECONDS
            if keys is not None and (
                (has_it and is_fresh) or now - self._asked_at < _PAUSE_SECONDS
            ):
                return keys
            if keys is None and now - self._asked_at < _PAUSE_SECONDS:
                raise OSError(f"the keys of {self._issuer} could not be read a moment ago")
            self._asked_at = now
            try:
                keys = self._keys = self._read_keys()
                self._read_at = now
            except (OSError, ValueError, TypeError, JoseError) as error:
                if keys is None:
                    raise OSError(f"the keys of {self._issuer} can't be read: {error}") from None
            return keys

    def _read_keys(self) -> KeySet:
        if self._keys_url is None:
            about = _read_json(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            if about.get("issuer") != self._issuer:
                raise ValueError("the provider there calls itself otherwise")
            self._keys_url = _url(about, "jwks_uri")
        found = _read_json(self._keys_url).get("keys")
        if not isinstance(found, list):
            raise ValueError(f"{self._keys_url} has no keys")
        return KeySet([key for each in found for key in _usable(each)])


def _usable(published: Any) -> list[Key]:
    """A published key; none of another kind, of an unknown curve, or with parts missing."""
    try:
        return KeySet.import_key_set({"keys": [published]}).keys if _is_pair(published) else []
    except (JoseError, ValueError, TypeError, LookupError):
        return []


def _is_pair(published: Any) -> bool:
    return isinstance(published, dict) and published.get("kty") in ("RSA", "EC")


def _read_json(url: str) -> dict[str, Any]:
    with urlopen(
        Request(url, headers={"Accept": "application/json"}), timeout=_TIMEOUT_SECONDS
    ) as answer:
        if not _is_safe(answer.url):  # after a redirection
            raise ValueError(f"{url} is answered from {answer.url}, without https")
        data = answer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{url} answers with more than {_MOST_BYTES} bytes")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"{url} answers with something else than an object")
    return found


def _text(options: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = options.get(key, default)
    if not isinstance(value, str):
        raise ConfigError("token_verifier_options", f"{key}: expected a text")
    return value


def _texts(
    options: Mapping[str, Any], key: str, default: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    value = options.get(key, default)
    values = (value,) if isinstance(value, str) else value
    if not (
        isinstance(values, list | tuple) and values and all(isinstance(v, str) for v in values)
    ):
        raise ConfigError("token_verifier_options", f"{key}: expected a text, or a list of them")
    return tuple(values)


def _url(options: Mapping[str, Any], key: str) -> str:
    value = _text(options, key)
    if not _is_safe(value):
        raise ConfigError("token_verifier_options", f"{key}: expected a URL that begins with https")
    return value


def _is_safe(url: str) -> bool:
    """Whether it goes by https, or stays here: whoever could change keys could be anybody."""
    parts = urlsplit(url)
    is_local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    is_private = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    return is_private and bool(parts.hostname)


def _seconds(options: Mapping[str, Any], key: str, default: int) -> float:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 300:
        raise ConfigError("token_verifier_options", f"{key}: expected 0 to 300 seconds")
    return float(value)
