"""Who somebody is and what they may do, as pure values: no socket, no Twisted, no broker.

    principals       the names of those who are served
    passwords        what is kept of passwords, and how one is checked
    users            who there is, as the users file says
    users_file       the file: read again when it has changed, replaced as a whole
    scram            proving that one knows a password without sending it
    tries            how fast passwords may be tried
    password_files   passwords as secret stores keep them
    credentials      what a client brings: whom it trusts, and who it is
    access           the rules of what they may do
    deciding         what several rules come to

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
    deed,
)
from hermes.security.credentials import PLAIN, ClientSecurity
from hermes.security.deciding import AccessDecision, AccessRules
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
    "check_user_name",
    "deed",
]
