"""What a distribution and its extras require: the command to install it, and outdated packages.

The command names the packages themselves. They are in every package index; Hermes may have been
installed from a checkout, a wheel or a git address. pip keeps to the bounds when it installs
Hermes, and only warns when something else is installed over it.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

_HERMES: Final = "hermes-log"
_BOUND: Final = re.compile(r"(>=|<)\s*(\d[\d.]*)")


def install_command(*extras: str, distribution: str = _HERMES) -> str:
    """The shell command that installs some extras' packages, such as `pip install 'msgpack>=1.0'`.

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
    """The extra of a distribution that brings a package, by its import name."""
    for extra, requirement in _requirements(distribution):
        name = re.match(r"[\w.-]+", requirement)
        if extra and name and name[0].replace("-", "_").lower() == package.lower():
            return extra
    return None


def outdated_requirements(extra: str = "") -> list[str]:
    """Compare the installed packages with those required.

    Args:
        extra: whose packages are checked; "" for what is always required.

    Returns:
        A line for each package that is too old or too new, with what to do. A missing one isn't
        reported: what imports it does, and some are imported for some settings only.
    """
    found = []
    for needed_by, requirement in _requirements(_HERMES):
        name = re.match(r"[\w.-]+", requirement)
        if name is None or needed_by != extra:
            continue
        try:
            installed = version(name[0])
        except PackageNotFoundError:
            continue
        if not _is_within(installed, requirement):
            text = f"{name[0]} {installed} is installed, Hermes needs {requirement}"
            found.append(f"{text}: pip install '{requirement}'")
    return found


def _is_within(installed: str, requirement: str) -> bool:
    bounds = _BOUND.findall(requirement)
    return all((_release(installed) < _release(limit)) == (kind == "<") for kind, limit in bounds)


def _release(text: str) -> list[int]:
    """The numbers that a version begins with; pre-release marks don't count."""
    (numbers,) = re.findall(r"^\d*(?:\.\d+)*", text)
    release = [int(each or 0) for each in numbers.split(".")]
    while release and release[-1] == 0:
        release.pop()
    return release


def _requirements(distribution: str) -> Iterator[tuple[str, str]]:
    """Each extra, "" for none, with one of its requirements, in order."""
    try:
        declared = requires(distribution) or ()
    except PackageNotFoundError:
        return
    for each in declared:
        requirement, _, marker = each.partition(";")
        found = re.search(r"""extra == ["']([\w.-]+)["']""", marker)
        yield found[1] if found else "", requirement.strip()
