"""Registers `twistd hermes` with Twisted; imports nothing else, to keep the plugin cache cheap."""

from twisted.application.service import ServiceMaker

hermes = ServiceMaker(  # type: ignore[no-untyped-call]
    "Hermes",
    "hermes.twistd",
    "A broker of a publish/subscribe log.",
    "hermes",
)
