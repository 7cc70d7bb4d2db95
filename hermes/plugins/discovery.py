"""Finds plugins through entry points and checks them before they are used.

An invalid plugin fails when the program starts, not when its first method is called; the error
has the group, the entry, its distribution, and what is missing. Knows no kind of plugin in
particular; what one must provide is in `hermes.interfaces`.
"""

import difflib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from zope.interface import Interface
from zope.interface.exceptions import (
    BrokenImplementation,
    BrokenMethodImplementation,
    DoesNotImplement,
    Invalid,
)
from zope.interface.verify import verifyClass, verifyObject

from hermes.errors import PluginError
from hermes.extras import extra_with, install_command

#: What makes plugins of one group, by name; see `find_plugin`.
PluginMakers = dict[str, Callable[..., Any]]


def available(group: str) -> tuple[str, ...]:
    """List the names of a group's plugins, sorted, without loading any."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_plugin(
    group: str, name: str, interface: type[Interface], *arguments: Any, **options: Any
) -> Any:
    """Find a plugin by its name, create it and make sure that it provides its interface.

    Args:
        group: the entry point group, for instance `hermes.retention`.
        name: the entry's name, as configured.
        interface: what the plugin must provide, of `hermes.interfaces`.
        *arguments: what the entry's factory is called with.
        **options: the same, by keyword.

    Returns:
        What the factory returned: a new object with each call, unless the factory shares one.

    Raises:
        PluginError: no distribution, or more than one, has such an entry; it can't be imported;
            its factory failed; or the object does not provide the interface.
    """
    return find_plugin(group, name, interface)(*arguments, **options)


def find_plugin(group: str, name: str, interface: type[Interface]) -> Callable[..., Any]:
    """Find a plugin as `load_plugin`, for those who make many: it reads all that is installed.

    Returns a function that makes one and makes sure that it provides the interface; it takes what
    the entry's factory takes, and raises PluginError.
    """
    entry = _find(group, name)
    label = _label(entry)
    try:
        factory = entry.load()
    except Exception as error:
        hint = _extra(entry, error) if isinstance(error, ImportError) else ""
        raise PluginError(
            f"{label}: can't be loaded from {entry.value!r}: {_describe(error)}{hint}"
        ) from error
    if not callable(factory):
        raise PluginError(
            f"{label}: {entry.value!r} is a {type(factory).__name__}, "
            f"expected a class or function that makes an {interface.__name__}"
        )
    if isinstance(factory, type):
        _verify(verifyClass, factory, interface, label)

    def make(*arguments: Any, **options: Any) -> Any:
        plugin = _create(factory, arguments, options, label)
        verify_plugin(plugin, interface, label)
        return plugin

    return make


def verify_plugin(plugin: object, interface: type[Interface], label: str) -> None:
    """Make sure that an object provides an interface, with all its methods and their arguments.

    Args:
        label: its name in the error, for instance "the producer's partitioner".

    Raises:
        PluginError: it doesn't; the text says what is missing.
    """
    _verify(verifyObject, plugin, interface, label)


def _find(group: str, name: str) -> EntryPoint:
    entries = tuple(entry_points(group=group, name=name))
    if len(entries) == 1:
        return entries[0]
    if entries:
        listed = " and ".join(sorted(_distribution(entry) for entry in entries))
        raise PluginError(f"{group}: {name!r} is ambiguous: {listed} both have it, uninstall one")
    names = available(group)
    if not names:
        raise PluginError(f"{group}: there is no {name!r}, nor any other plugin of this group")
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise PluginError(f"{group}: there is no {name!r}; {hint}installed: {', '.join(names)}")


def _extra(entry: EntryPoint, error: ImportError) -> str:
    """How to install what is missing, if an extra of the plugin's distribution brings it."""
    if entry.dist is None or not error.name:
        return ""
    extra = extra_with(error.name, entry.dist.name)
    return "" if extra is None else f" ({install_command(extra, distribution=entry.dist.name)})"


def _create(
    factory: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], label: str
) -> Any:
    try:
        return factory(*arguments, **options)
    except Exception as error:
        raise PluginError(f"{label}: could not be created: {_describe(error)}") from error


def _verify(
    check: Callable[[Any, Any], Any], candidate: object, interface: type[Interface], label: str
) -> None:
    try:
        check(interface, candidate)
    except Invalid as error:
        faults = "; ".join(_faults(error, interface))
        raise PluginError(
            f"{label}: {plugin_name(candidate)} is not an {interface.__name__}: {faults}"
        ) from error


def _faults(error: Invalid, interface: type[Interface]) -> Iterator[str]:
    """What zope.interface found, in words that a plugin's author can act on."""
    several = getattr(error, "exceptions", None)
    if several is not None:
        for each in several:
            yield from _faults(each, interface)
    elif isinstance(error, DoesNotImplement):
        yield f"it isn't declared with @implementer({interface.__name__})"
    elif isinstance(error, BrokenMethodImplementation):
        method = error.method
        yield f"{method.getName()}{method.getSignatureString()}: {error.mess}"
    elif isinstance(error, BrokenImplementation):
        missing = error.name
        signature = getattr(missing, "getSignatureString", str)()
        yield f"{getattr(missing, '__name__', missing)}{signature} is missing"
    else:
        yield str(error)


def plugin_name(candidate: object) -> str:
    """A plugin's name in errors: its class, with the module."""
    described = candidate if isinstance(candidate, type) else type(candidate)
    return f"{described.__module__}.{described.__qualname__}"


def _label(entry: EntryPoint) -> str:
    return f"{entry.group}: {entry.name!r} of {_distribution(entry)}"


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def _describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
