"""Hermes: a distributed publish/subscribe log that speaks Kafka 0.7's protocol and disk format.

The layers, lowest first: `errors`, `interfaces`, `config` and `plugins`, `protocol`, `storage`;
on these stand `broker` and `client`, which never import each other; `cli`, `tap` and `testing`
stand on top. ARCHITECTURE.md tells why.
"""

from hermes._version import __version__

__all__ = ["__version__"]
