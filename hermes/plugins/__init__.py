"""Plugins: how they are found and checked, and the built-in ones, one package per kind.

A plugin, built in or not, is found by its entry point and never imported by name; so what works
for `time-and-size` works for a third party's. docs/plugins.md has a complete one.
"""

from hermes.plugins.discovery import (
    PluginMakers,
    available,
    find_plugin,
    load_plugin,
    plugin_name,
    verify_plugin,
)

__all__ = [
    "PluginMakers",
    "available",
    "find_plugin",
    "load_plugin",
    "plugin_name",
    "verify_plugin",
]
