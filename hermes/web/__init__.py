"""HTTP on twisted.web: ports, limits, authentication, and ways to respond.

Each port has a gate, which says who a request is from; a guard knows the users and rules that the
gates of a process share. Knows neither the broker nor the client library, nor what is served.
"""

from hermes.web.gates import Rule, WebGate
from hermes.web.guards import WebGuard, users_guard
from hermes.web.hosts import AcceptedHosts
from hermes.web.logins import Logins
from hermes.web.monitoring import Health, MetricsResource, StatePage
from hermes.web.responses import ErrorPage, respond_later, stream, write_json, write_text
from hermes.web.server import WebServer
from hermes.web.site import CONTENT_SECURITY_POLICY, Root, Site
from hermes.web.web_thread import WebThread

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
    "StatePage",
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
