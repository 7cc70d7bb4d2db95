"""What a distribution's extras need, and the command that installs it.

The command names the packages themselves. They are in every package index; Hermes may have been
installed from a checkout, a wheel or a git address.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

_HERMES: Final = "hermes-log"


def install_command(*extras: str, distribution: str = _HERMES) -> str:
    """Tell how to install what some extras need.

    Args:
        extras: their names, as `setup.cfg` has them.
        distribution: whose extras they are.

    Returns:
        A command for a shell, such as `pip install 'msgpack>=1.0'`.

    Raises:
        LookupError: the distribution is installed and has no such extra.
    """
    needed = list(_requirements(distribution))
    if not needed:  # it isn't installed: its files are merely on the path
        return f"pip install '{distribution}[{','.join(extras)}]'"
    for extra in extras:
        if extra not in (name for name, _ in needed):
            raise LookupError(f"{distribution} has no extra {extra!r}")
    found = [requirement for name, requirement in needed if name in extras]
    return " ".join(["pip install", *(f"'{each}'" for each in dict.fromkeys(found))])


def extra_with(package: str, distribution: str) -> str | None:
    """The extra of a distribution that brings a package, if one does.

    Args:
        package: its name, as it is imported.
        distribution: whose extras are looked through.
    """
    for extra, requirement in _requirements(distribution):
        name = re.match(r"[\w.-]+", requirement)
        if name and name[0].replace("-", "_").lower() == package.lower():
            return extra
    return None


def _requirements(distribution: str) -> Iterator[tuple[str, str]]:
    """Each extra with a requirement of it, in the order in which they are declared."""
    try:
        declared = requires(distribution) or ()
    except PackageNotFoundError:
        return
    for each in declared:
        requirement, _, marker = each.partition(";")
        if found := re.search(r"""extra == ["']([\w.-]+)["']""", marker):
            yield found[1], requirement.strip()
