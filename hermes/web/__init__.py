"""What this process serves over HTTP, on twisted.web: the site, its limits, and ways to respond.

    hosts       which names a request may be addressed to
    logins      users' passwords as requests bring them
    answers     JSON, text and error pages; responses that come later, or in turns
    gates       who a request is from, and whether it may have what it asks for
    guards      what the gates of a process share: users and rules
    site        requests: their limits, the check of their host, the headers of every response
    operating   health and metrics, as any process that serves has them
    server      ports opened, and closed again with their connections
    own_thread  all of it in a thread, for programs that have no reactor

Knows neither the broker nor the client library, nor what is served.
"""

from hermes.web.answers import ErrorPage, respond_later, stream, write_json, write_text
from hermes.web.gates import Rule, WebGate
from hermes.web.guards import WebGuard, users_guard
from hermes.web.hosts import AcceptedHosts
from hermes.web.logins import Logins
from hermes.web.operating import Health, MetricsResource
from hermes.web.own_thread import WebThread
from hermes.web.server import WebServer
from hermes.web.site import CONTENT_SECURITY_POLICY, Root, Site

__all__ = [
    "CONTENT_SECURITY_POLICY",
    "AcceptedHosts",
    "ErrorPage",
    "Health",
    "Logins",
    "MetricsResource",
    "Root",
    "Rule",
    "Site",
    "WebGate",
    "WebGuard",
    "WebServer",
    "WebThread",
    "respond_later",
    "stream",
    "users_guard",
    "write_json",
    "write_text",
]
