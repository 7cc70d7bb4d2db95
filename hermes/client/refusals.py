"""What a broker's refusals mean to whom they met: a code on the wire says neither where nor who."""

from typing import Final, NamedTuple

from hermes.errors import BrokerError, HermesError, NotAuthenticatedError, NotAuthorizedError
from hermes.security import PLAIN, ClientSecurity


class Refused(NamedTuple):
    """Who asks, and where.

    Attributes:
        address: the broker's, as `host:port`.
        security: what the client brings.
    """

    address: str = "the broker"
    security: ClientSecurity = PLAIN

    def explain(self, error: HermesError) -> HermesError:
        """An error that says more, for one that a broker has answered with; else the same."""
        return self.explain_code(error) if isinstance(error, BrokerError) else error

    def explain_code(self, error: BrokerError) -> BrokerError:
        """As `explain`."""
        whom = self.security.whom
        if type(error) is NotAuthorizedError:
            return NotAuthorizedError(
                f"{error}. {self.address} takes this client for {whom}; ask who keeps its rules "
                "(access in broker.yaml)"
            )
        if type(error) is NotAuthenticatedError and self.security.user is None:
            return NotAuthenticatedError(
                f"{error}. To {self.address} this client is {whom}: set user and password"
            )
        return error


#: For whoever carries no conversations.
UNKNOWN: Final = Refused()
