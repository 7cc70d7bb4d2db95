"""Plugins: how they are found and checked, and the built-in ones, a package a kind.

A plugin is named by its entry point and never imported by name, the built-ins included; so what
works for `time-and-size` works for a third party's. docs/plugins.md shows a whole one.
"""

from hermes.plugins.discovery import available, load_plugin, plugin_name, verify_plugin

__all__ = ["available", "load_plugin", "plugin_name", "verify_plugin"]
