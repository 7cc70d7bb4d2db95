"""The built-in partitioners, found by name through the entry points `hermes.partitioners`."""
