"""Lets everybody do what they like with topics and groups that are named after them."""

from typing import Any

from zope.interface import implementer

from hermes.interfaces import AuthorizerSettings, IAuthorizer


@implementer(IAuthorizer)
class OwnTopics:
    """Allows alice everything with `alice.clicks`, and operators everything.

    Args:
        settings: what broker.yaml says; `authorizer_options: {operators: [root]}` names those who
            may do everything.
    """

    def __init__(self, settings: AuthorizerSettings) -> None:
        operators = settings.options.get("operators", [])
        if not isinstance(operators, list) or not all(isinstance(each, str) for each in operators):
            raise ValueError(f"operators: expected a list of names, got {operators!r}")
        self._operators = frozenset(operators)

    def is_allowed(
        self, principal: str, groups: frozenset[str], operation: str, kind: str, name: str
    ) -> bool:
        """See `IAuthorizer`."""
        return principal in self._operators or name.startswith(f"{principal}.")

    def revision(self) -> Any:
        """See `IAuthorizer`: it never decides otherwise."""
        return None
