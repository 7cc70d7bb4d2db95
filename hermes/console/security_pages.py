"""The page with the users, access rules and quotas that a broker has in force."""

from collections.abc import Callable
from typing import Final, NamedTuple

from hermes.config.broker import BrokerConfig
from hermes.console.page_request import (
    NoSuchPageError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
)
from hermes.console.sources import Sources
from hermes.errors import ConfigError
from hermes.security.access import OPERATIONS_ON, Operation, Resource, ResourceKind
from hermes.security.decisions import AccessDecision, explain_decision
from hermes.security.users import Users
from hermes.security.users_file import read_users

_MOST_USERS: Final = 200
_SOURCE: Final = "broker.yaml"
_SOURCES: Final = "broker.yaml and ACLs"


class UserRow(NamedTuple):
    """A user, without anything that would help to find the password.

    `mechanisms`: of SASL; none for users with a certificate only.
    """

    name: str
    groups: tuple[str, ...]
    mechanisms: tuple[str, ...]


def user_rows(users: Users, search: str) -> list[UserRow]:
    rows = []
    for name in sorted(users.names):
        groups = tuple(sorted(users.groups(name)))
        if any(search.lower() in each.lower() for each in (name, *groups)):
            mechanisms = tuple(each.mechanism for each in users.verifier(name) or ())
            rows.append(UserRow(name, groups, mechanisms))
    return rows


def _config(sources: Sources) -> BrokerConfig:
    if sources.broker_config is None:
        raise NoSuchPageError(
            "Users and access rules are shown by the console of a broker, not by hermes console."
        )
    return sources.broker_config()


def _security(sources: Sources, request: PageRequest) -> PageResponse:
    config = _config(sources)
    users, problem = _users(config)
    search = request.text("q")
    quotas = {**config.requested.quotas, **config.quotas}
    found = user_rows(users, search)
    return sources.page(
        request,
        "security",
        "security.html",
        rules=config.rules,
        users=found[:_MOST_USERS],
        found=len(found),
        total=len(users.names),
        search=search,
        problem=problem,
        has_users=config.users_file is not None,
        quotas=[(name, str(quotas[name])) for name in quotas],
        operations=[str(each) for each in Operation],
        asked={key: request.text(key) for key in ("principal", "operation", "kind", "name")},
        verdict=_verdict(config, users, request.text),
    )


def _users(config: BrokerConfig) -> tuple[Users, str]:
    if config.users_file is None:
        return Users.none(), ""
    try:
        return read_users(config.users_file)[0], ""
    except ConfigError as error:
        return Users.none(), f"{error}; what the file said before holds until it is mended"


def _verdict(
    config: BrokerConfig, users: Users, text: Callable[[str], str]
) -> tuple[AccessDecision, str] | None:
    """What the rules say of a principal; None if the form asks about nobody."""
    principal, operation = text("principal"), text("operation")
    if not principal or operation not in list(Operation):
        return None
    kind = ResourceKind(text("kind")) if text("kind") in list(ResourceKind) else ResourceKind.TOPIC
    wanted = Operation(operation)
    resource = Resource(kind, "" if kind is ResourceKind.CLUSTER else text("name"))
    if wanted not in OPERATIONS_ON[kind]:
        return AccessDecision(False), f"{wanted} is not done to a {kind}"
    groups = users.groups(principal)
    source = _SOURCES if config.requested.rules else _SOURCE
    return explain_decision(config.rules, source, principal, groups, wanted, resource)


ROUTES: Final = (PageRoute("GET", ("security",), _security, PagePermission.ADMIN),)
