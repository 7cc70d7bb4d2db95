"""The built-in retention policies, found by name through the entry points `hermes.retention`."""
