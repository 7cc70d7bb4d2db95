"""Everything that counts runs with the compiled loops and with those in Python."""

from either_core import either_core

__all__ = ["either_core"]
