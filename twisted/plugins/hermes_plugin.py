"""Makes `twistd hermes` known to Twisted; imports nothing else, so that the plugin cache stays cheap."""

from twisted.application.service import ServiceMaker

hermes = ServiceMaker(
    "Hermes",
    "hermes.tap",
    "A distributed publish/subscribe log (Kafka 0.7 wire protocol and disk format)",
    "hermes",
)
