"""Principals, passwords and access rules as pure values: no socket, no Twisted, no broker.

Whatever needs a library that few brokers use imports it where it is called; so `scram`, `users`
and `users_file` are imported by their own names.
"""

from hermes.security.access import (
    CLUSTER,
    LONGEST_NAME,
    AccessRule,
    Operation,
    Resource,
    ResourceKind,
    Rights,
    action_text,
)
from hermes.security.credentials import PLAIN, ClientSecurity
from hermes.security.decisions import AccessDecision, AccessRules
from hermes.security.principals import ANONYMOUS, INTERNAL, check_user_name

__all__ = [
    "ANONYMOUS",
    "CLUSTER",
    "INTERNAL",
    "LONGEST_NAME",
    "PLAIN",
    "AccessDecision",
    "AccessRule",
    "AccessRules",
    "ClientSecurity",
    "Operation",
    "Resource",
    "ResourceKind",
    "Rights",
    "action_text",
    "check_user_name",
]
