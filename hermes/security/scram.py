"""SCRAM (RFC 5802, RFC 7677) as conversations without I/O: a server's half, and a client's.

    client                       server
    first()     ->  challenge()
    answer()    <-
                ->  finish()
    verify()    <-

All arithmetic and parsing is `scramp`'s. What is decided here: unknown names are answered as users
are, no error of RFC 5802 is ever sent (they tell which users there are), and a client doesn't let a
broker keep it busy. Without channel binding: TLS authenticates the broker.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from scramp import ScramClient as _Client
from scramp import ScramException, ScramMechanism

from hermes.errors import ConfigError, NotAuthenticatedError
from hermes.interfaces import IAuthenticator, User
from hermes.security.passwords import MECHANISMS, MOST_ITERATIONS, verifier_of
from hermes.security.principals import is_user_name

__all__ = ["MECHANISMS", "ScramClient", "ScramServer", "converse", "refusal_of"]

_Step = TypeVar("_Step")
_Outcome = TypeVar("_Outcome")

_MALFORMED: Final = "this is not a message of SCRAM"
_WRONG: Final = "the user or the password is wrong"


class ScramServer:
    """A broker's half of one conversation. Both methods may block: the authenticator does.

    Args:
        mechanism: one of `MECHANISMS`.
        nonce: a random one unless given, by a test.

    Attributes:
        name: the name that the client claims, after SASLprep; empty before `challenge`.
        found: the user of that name, if there is one; only `finish` authenticates them.
    """

    def __init__(
        self, mechanism: str, authenticator: IAuthenticator, *, nonce: str | None = None
    ) -> None:
        self.name = ""
        self.found: User | None = None
        self._mechanism = mechanism
        self._authenticator = authenticator
        self._is_real = False
        self._failure: Exception | None = None
        made = ScramMechanism(mechanism)
        self._server = made.make_server(self._keys, s_nonce=nonce)

    def challenge(self, message: bytes) -> bytes:
        """Take the client's first message, and answer with salt and iterations.

        Raises NotAuthenticatedError: it isn't a message of SCRAM; others: users can't be looked
        up now.
        """
        try:
            self._server.set_client_first(message.decode())
            first: str = self._server.get_server_first()
        except (ScramException, UnicodeError):
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure from None
            raise NotAuthenticatedError(_MALFORMED) from None
        finally:
            self._server.auth_fn = None  # else it and this object would keep each other
        return first.encode()

    def finish(self, message: bytes) -> tuple[User, bytes]:
        """Take the client's proof, and answer with the broker's own.

        Returns:
            Who it is, and the last message.

        Raises:
            NotAuthenticatedError: the user or the password is wrong, which of them isn't said; or
                it isn't a message of SCRAM.
        """
        try:
            self._server.set_client_final(message.decode())
            final: str = self._server.get_server_final()
        except (ScramException, UnicodeError):
            raise NotAuthenticatedError(_WRONG) from None
        if self.found is None or not self._is_real:
            raise NotAuthenticatedError(_WRONG)
        return self.found, final.encode()

    def _keys(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self.name = name
        try:
            self.found = self._authenticator.find(name) if is_user_name(name) else None
            disguise = self._authenticator.disguise()
        except Exception as error:
            self._failure = error
            raise
        used, self._is_real = verifier_of(self.found, disguise, name, self._mechanism)
        return used.salt, used.stored_key, used.server_key, used.iterations


class ScramClient:
    """A client's half of one conversation.

    Args:
        mechanism: one of `MECHANISMS`.
        nonce: a random one unless given, by a test.

    Raises:
        ConfigError: name or password hold what SASLprep (RFC 4013) doesn't allow.
    """

    def __init__(
        self,
        user: str,
        password: str,
        mechanism: str = MECHANISMS[0],
        *,
        nonce: str | None = None,
    ) -> None:
        self.mechanism = mechanism
        # One after the other: an error names what it is about, and never has a password's frames.
        self._made("user", user, "password", mechanism, None)
        self._client = self._made("password", user, password, mechanism, nonce)

    @staticmethod
    def _made(setting: str, user: str, password: str, mechanism: str, nonce: str | None) -> _Client:
        try:
            return _Client([mechanism], user, password, c_nonce=nonce)
        except (ScramException, UnicodeError) as error:
            reason = str(error).partition(":")[0] if isinstance(error, ScramException) else "UTF-8"
            raise ConfigError(setting, f"it holds what SASLprep doesn't allow: {reason}") from None

    def first(self) -> bytes:
        message: str = self._client.get_client_first()
        return message.encode()

    def answer(self, challenge: bytes) -> bytes:
        """Answer the broker's challenge. Runs PBKDF2: some ms, without Python's lock.

        Raises NotAuthenticatedError: it isn't a challenge, or asks for absurdly much work.
        """
        try:
            self._client.set_server_first(challenge.decode())
            if int(self._client.iterations) > MOST_ITERATIONS:
                raise NotAuthenticatedError(
                    f"the broker asks for {self._client.iterations} iterations; {MOST_ITERATIONS} "
                    "are the most that are made"
                )
            message: str = self._client.get_client_final()
        except (ScramException, UnicodeError):
            raise NotAuthenticatedError("the broker's answer is not one of SCRAM") from None
        return message.encode()

    def verify(self, final: bytes) -> None:
        """Raises NotAuthenticatedError: the broker doesn't know the user; send it nothing."""
        try:
            self._client.set_server_final(final.decode())
        except (ScramException, UnicodeError):
            raise NotAuthenticatedError(
                "the broker can't prove that it knows this user: it is not the one it should be"
            ) from None


def converse(
    client: ScramClient,
    whom: str,
    address: str,
    say: Callable[[bytes], Generator[_Step, _Outcome, bytes]],
) -> Generator[_Step, _Outcome, None]:
    """Have a client and a broker prove to each other who they are, in whatever protocol.

    `whom` names the client in errors. `say` sends a message by steps of that protocol, and returns
    the broker's. Raises NotAuthenticatedError: the broker could not prove itself; and what `say`
    raises.
    """
    challenge = yield from say(client.first())
    try:
        proof = client.answer(challenge)
    except NotAuthenticatedError as error:
        raise NotAuthenticatedError(f"{address}, to {whom}: {error}") from None
    last = yield from say(proof)
    try:
        client.verify(last)
    except NotAuthenticatedError as error:
        raise NotAuthenticatedError(
            f"{address} did not prove that it knows {whom}: it is not the broker that it "
            f"seems to be ({error})"
        ) from None


def refusal_of(whom: str, address: str) -> NotAuthenticatedError:
    """The error for a broker that refuses a client."""
    return NotAuthenticatedError(
        f"{address} refused {whom}: the name or the password is wrong, or there were "
        "too many attempts; ask who keeps the broker's users_file"
    )
