"""Plugins for Hermes, found through the entry points in setup.cfg."""
