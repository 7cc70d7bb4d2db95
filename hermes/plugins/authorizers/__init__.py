"""The built-in authorizers, found by name through the entry points `hermes.authorizers`."""
