"""What a listener asks of those who connect to it, as its connections need it."""

from dataclasses import dataclass, field
from typing import Self

from hermes.config.listeners import ListenerConfig, TlsConfig
from hermes.coordination.listeners import ListenerNode
from hermes.interfaces import IAuthenticator


@dataclass(frozen=True, slots=True)
class ListenerPolicy:
    """The policy of one listener.

    Attributes:
        authentication: `none`, `tls`, `scram` or `token`.
        authenticator: knows the users of this listener; None: the broker's does.
        plain: whether Kafka's clients may send passwords as they are.
    """

    name: str = "0"
    authentication: str = "none"
    tls: TlsConfig | None = None
    authenticator: IAuthenticator | None = field(default=None, repr=False)
    plain: bool = False

    @property
    def has_gate(self) -> bool:
        """Whether clients have to say who they are before they are served."""
        return self.authentication in ("scram", "token")

    @property
    def listener(self) -> ListenerNode:
        """For comparison with registered listeners, to find those that are alike."""
        return ListenerNode(self.name, "", 0, self.tls is not None, self.authentication)

    @classmethod
    def of(cls, config: ListenerConfig) -> Self:
        return cls(config.name, config.authentication, config.tls, plain=config.plain)
