"""Authentication as a conversation: by SCRAM, before anything else is said over a connection.

Owns what is said and what refusals mean, without I/O; as in `conversations`, the drivers of the
blocking and the asynchronous clients perform the steps. Steps compute for milliseconds, on purpose
of SCRAM: event loops call `advance` in a thread.
"""

from collections.abc import Generator
from functools import partial
from typing import TypeAlias, TypeVar

from hermes.client.conversations import Exchange
from hermes.errors import (
    BrokerNotReachedError,
    BrokerUnavailableError,
    HermesError,
    NotAuthenticatedError,
    StorageUnavailableError,
    UnsupportedRequestVersionError,
)
from hermes.protocol import AuthenticateRequest, Buffer, decode_authenticate_response
from hermes.security import ClientSecurity

_R = TypeVar("_R")

#: A conversation whose steps are exchanges of messages.
Authentication: TypeAlias = Generator[Exchange[bytes], bytes, _R]


def authenticate(security: ClientSecurity, address: str) -> Authentication[None]:
    """Prove who this is, and have the broker prove that it knows the user.

    Raises:
        NotAuthenticatedError: the broker refuses the user, or could not prove itself.
        BrokerNotReachedError: the connection ended, or the broker can't look users up now.
    """
    # And its libraries, for those only who need it.
    from hermes.security.scram import ScramClient, converse

    assert security.user is not None
    assert security.password is not None  # `ClientSecurity` sees to it
    client = ScramClient(security.user, security.password)
    say = partial(_say, client.mechanism, security, address)
    yield from converse(client, security.whom, address, say)


def _say(
    mechanism: str, security: ClientSecurity, address: str, message: bytes
) -> Authentication[bytes]:
    from hermes.security.scram import refusal_of

    request = AuthenticateRequest(mechanism, message).encode()
    try:
        return (yield Exchange(request, decode_authenticate_response, repeatable=False))
    except NotAuthenticatedError:
        raise refusal_of(security.whom, address) from None
    except UnsupportedRequestVersionError:
        raise NotAuthenticatedError(
            f"{address} does not authenticate by {mechanism}, so not {security.whom}: leave out "
            "user and password, or give the port of a listener with authentication: scram"
        ) from None
    except StorageUnavailableError as error:
        raise BrokerNotReachedError(f"{address} can't look up {security.whom}: {error}") from error
    except BrokerUnavailableError as error:
        raise BrokerNotReachedError(
            f"{address} closed the connection when {security.whom} was to be authenticated; is it "
            "being restarted, or is this another port (of kafka_listen, coordination, Kafka 0.7)?"
        ) from error


def advance(
    talk: Authentication[None], step: Exchange[bytes], outcome: Buffer | HermesError
) -> Exchange[bytes] | None:
    """Tell a conversation what its last step came to: a response's body or an error.

    Returns the next step; None when all is done. Raises as `authenticate` does.
    """
    try:
        if isinstance(outcome, HermesError):
            following = talk.throw(outcome)
        else:
            try:
                answer = step.decode(outcome)
            except HermesError as refused:
                following = talk.throw(refused)
            else:
                following = talk.send(answer)
    except StopIteration:
        return None
    return following
