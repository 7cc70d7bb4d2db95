"""Passwords and their verifiers, of SCRAM (RFC 5802, RFC 7677).

All arithmetic is `scramp`'s, imported only here and in `scram`.
"""

import hashlib
import hmac
import secrets
from typing import Final

from hermes.errors import ConfigError
from hermes.interfaces import Disguise, IAuthenticator, User, Verifier
from hermes.security.principals import is_user_name

#: What a broker takes, the one that Hermes' clients use first.
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

#: Four times what RFC 7677 asks for at least: some 10 ms for a client that connects, and for
#: whoever tries passwords on a stolen file as much for each.
DEFAULT_ITERATIONS: Final = 16_384

#: Beyond it a file that somebody has made, or a hostile broker, would keep processors busy.
MOST_ITERATIONS: Final = 1_000_000

LEAST_ITERATIONS: Final = 4096
LEAST_SALT_BYTES: Final = 12
#: Those of names that nobody has are as long as users' are.
MOST_SALT_BYTES: Final = 64
KEY_BYTES: Final = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}

_SALT_BYTES: Final = 16
_MOST_CHARACTERS: Final = 1000


def check_password(password: str) -> None:
    """Refuse an invalid password; the error has nothing of it.

    Raises ConfigError: it is empty, very long, or holds what SASLprep (RFC 4013) doesn't allow.
    """
    make_verifier(password, iterations=LEAST_ITERATIONS)


def make_verifier(
    password: str,
    mechanism: str = MECHANISMS[0],
    iterations: int = DEFAULT_ITERATIONS,
    *,
    salt: bytes | None = None,
) -> Verifier:
    """Make a password's verifier. Takes about 1 ms for every 1,500 iterations.

    Args:
        password: 1 to 1,000 characters.
        mechanism: one of `MECHANISMS`.
        iterations: `LEAST_ITERATIONS` to `MOST_ITERATIONS`.
        salt: a random one unless given.

    Raises:
        ConfigError: as for `check_password`, or so many iterations aren't allowed.
    """
    from scramp import ScramException, ScramMechanism

    if not 1 <= len(password) <= _MOST_CHARACTERS:
        raise ConfigError("password", f"a password has 1 to {_MOST_CHARACTERS} characters")
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ConfigError("iterations", f"{LEAST_ITERATIONS} to {MOST_ITERATIONS} are allowed")
    made = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    try:
        _, stored_key, server_key, _ = ScramMechanism(mechanism).make_auth_info(
            password, iteration_count=iterations, salt=made
        )
    except (ScramException, UnicodeError) as error:
        # Its text says which kind of character, and nothing of the password; but a cause would
        # show the frames that hold it.
        reason = str(error).partition(":")[0] if isinstance(error, ScramException) else "UTF-8"
        raise ConfigError(
            "password", f"it holds characters that no password can have: {reason}"
        ) from None
    return Verifier(mechanism, iterations, made, stored_key, server_key)


def salted_password(password: str, mechanism: str, iterations: int) -> tuple[bytes, bytes]:
    """Salt a password (RFC 5802's SaltedPassword): a random salt, and what it comes to with that.

    Raises ConfigError as `make_verifier`.
    """
    from scramp.utils import saslprep

    salt = make_verifier(password, mechanism, LEAST_ITERATIONS).salt
    digest = "sha256" if mechanism == MECHANISMS[0] else "sha512"
    prepared = saslprep(password).encode()
    return salt, hashlib.pbkdf2_hmac(digest, prepared, salt, iterations)


def verifier_of_salted(mechanism: str, iterations: int, salt: bytes, salted: bytes) -> Verifier:
    """Make the verifier of what a password was salted to (RFC 5802's SaltedPassword)."""
    digest = "sha256" if mechanism == MECHANISMS[0] else "sha512"
    stored_key = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    return Verifier(mechanism, iterations, salt, stored_key, server_key)


def disguised(disguise: Disguise, name: str, mechanism: str) -> Verifier:
    """The verifier of a name that nobody has, the same each time. No password fits it."""

    def derived(what: str) -> bytes:
        text = f"{mechanism}:{what}:{name}".encode(errors="surrogatepass")
        return hmac.digest(disguise.secret, text, "sha512")

    size = KEY_BYTES[mechanism]
    return Verifier(
        mechanism,
        disguise.iterations,
        derived("salt")[: disguise.salt_bytes],
        derived("stored key")[:size],
        derived("server key")[:size],
    )


def verifier_of(
    found: User | None, disguise: Disguise, name: str, mechanism: str
) -> tuple[Verifier, bool]:
    """The verifier for a name, and whether it is a user's.

    The same is done for users and for all other names, so that it takes the same time.
    """
    chosen, is_real = disguised(disguise, name, mechanism), False
    for each in () if found is None else found.verifiers:
        if each.mechanism == mechanism:
            chosen, is_real = each, True
    return chosen, is_real


def verify_password(authenticator: IAuthenticator, name: str, password: str) -> User | None:
    """Check a clear-text password, where a protocol has no better (basic, ZooKeeper's digest).

    Blocks, for ten milliseconds or what the user's iterations take, the same for unknown names:
    call it in a thread.

    Returns:
        The user; None for a wrong name or password.

    Raises:
        Exception: what the authenticator raises when users can't be looked up now.
    """
    found = authenticator.find(name) if is_user_name(name) else None
    verifiers = () if found is None else found.verifiers
    known = [each.mechanism for each in verifiers]
    mechanism = known[0] if len(known) == 1 else MECHANISMS[0]
    expected, is_real = verifier_of(found, authenticator.disguise(), name, mechanism)
    try:
        given = make_verifier(password, expected.mechanism, expected.iterations, salt=expected.salt)
    except ConfigError:
        return None
    is_right = hmac.compare_digest(given.stored_key, expected.stored_key)
    return found if is_right and is_real else None
