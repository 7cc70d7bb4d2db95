"""What a listener asks of those who connect to it, as its connections need it."""

from dataclasses import dataclass, field
from typing import Self

from hermes.config import ListenerConfig, TlsConfig
from hermes.coordination.listeners import ListenerNode
from hermes.interfaces import IAuthenticator


@dataclass(frozen=True, slots=True)
class ListenerPolicy:
    """The policy of one listener.

    Attributes:
        name: the listener's.
        authentication: how clients say who they are: `none`, `tls` or `scram`.
        tls: how it does TLS; None: it doesn't.
        authenticator: knows the users of this listener; None: the broker's does.
    """

    name: str = "0"
    authentication: str = "none"
    tls: TlsConfig | None = None
    authenticator: IAuthenticator | None = field(default=None, repr=False)

    @property
    def listener(self) -> ListenerNode:
        """What registered listeners are compared with, to find those that are alike."""
        return ListenerNode(self.name, "", 0, self.tls is not None, self.authentication)

    @classmethod
    def of(cls, config: ListenerConfig) -> Self:
        """The policy that a setting says."""
        return cls(config.name, config.authentication, config.tls)
