"""What a broker tells over HTTP: `/health/live`."""

from typing import Any

from twisted.web.resource import Resource

from hermes.web import Root, write_json


def add_resources(root: Root) -> None:
    """Serve a broker's health.

    Args:
        root: the top of what is served.
    """
    health = Resource()
    health.putChild(b"live", _Live())
    root.add("health", health, any_host=True)


class _Live(Resource):
    """Answered by the reactor: so it turns."""

    isLeaf = True

    def render_GET(self, request: Any) -> bytes:
        """Respond."""
        return write_json(request, {"live": True})
