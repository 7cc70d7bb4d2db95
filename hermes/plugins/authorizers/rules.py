"""The authorizer `rules`: the access rules of broker.yaml decide."""

from zope.interface import implementer

from hermes.interfaces import AuthorizerSettings, IAuthorizer
from hermes.security import AccessRules, Operation, Resource, ResourceKind


@implementer(IAuthorizer)
class RulesAuthorizer:
    """Allows what `access:` allows."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        if settings.options:
            raise ValueError(f"it takes no options, got {', '.join(map(str, settings.options))}")
        self._rules = AccessRules(settings.rules or ())

    def is_allowed(
        self, principal: str, groups: frozenset[str], operation: str, kind: str, name: str
    ) -> bool:
        resource = Resource(ResourceKind(kind), name)
        return self._rules.allows(principal, groups, Operation(operation), resource)

    def revision(self) -> object:
        return None
