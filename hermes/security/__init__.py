"""Who somebody is and what they may do, as pure values: no socket, no Twisted, no broker.

    principals       the names of those who are served
    password_files   passwords as secret stores keep them
    credentials      what a client brings: whom it trusts, and who it is

Whatever needs a library that few brokers use imports it where it is called.
"""

from hermes.security.credentials import PLAIN, ClientSecurity
from hermes.security.principals import ANONYMOUS, INTERNAL, check_user_name

__all__ = ["ANONYMOUS", "INTERNAL", "PLAIN", "ClientSecurity", "check_user_name"]
