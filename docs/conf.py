"""The documentation as a site, by Sphinx: `scripts/docs` builds it into build/docs.

The pages are the Markdown files that a forge shows, README.md first, as they are: MyST understands
their links and anchors. README.md's tables of pages are the navigation. The reference in docs/api
comes from docstrings. Nothing is loaded from the net, neither by the build nor by the pages.
"""

import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring
from zope.interface.interface import InterfaceClass, Method

import hermes.interfaces
from hermes import __version__

ROOT = Path(__file__).resolve().parents[1]

project = "Hermes"
author = "the Hermes authors"
release = version = __version__
html_title = f"Hermes {__version__}"

# The source directory is the repository's root, for README.md and its like.
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst"]
exclude_patterns = ["docs/description.md"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # a page may begin with a second level

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_mock_imports = [
    name for name in ("pyspark", "pyarrow", "pandas", "deltalake", "obstore") if not find_spec(name)
]
napoleon_use_ivar = True
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

_CODE = re.compile(r"`+([^`]+)`+")
_TABLE = re.compile(r"^\| ([^|\[]+) \| \|\n\|---\|---\|\n((?:\|.*\|\n)+)", re.MULTILINE)
_ROW = re.compile(r"^\| \[[^]]+\]\(([^)]+)\.md\)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Connect what makes a site of files that aren't written for it."""
    app.connect("source-read", complete_source)
    app.connect("doctree-read", unlink_others)
    app.connect("autodoc-process-docstring", adapt_docstring, priority=100)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("build-finished", write_index)


def complete_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append what only the site needs: the navigation, and interfaces, which autodoc can't read."""
    if docname == root_doc:
        source[0] += navigation(source[0])
    elif docname == "docs/api/plugins":
        source[0] += "\n".join(interfaces(app))


def unlink_others(app: Sphinx, doctree: nodes.document) -> None:
    """Show a link to a directory, or to a page beside the documentation, as its text."""
    here = (ROOT / app.env.docname).parent
    for node in list(doctree.findall(addnodes.pending_xref)):
        target = node["reftarget"]
        is_other = node.get("refdomain") == "doc" and target not in app.env.found_docs
        if node["reftype"] == "myst" and (is_other or (here / target).is_dir()):
            node.replace_self(node.children)


def navigation(readme: str) -> str:
    """The tables of pages as Sphinx' own: one list for each, with its heading."""
    parts = []
    for title, rows in _TABLE.findall(readme):
        pages = _ROW.findall(rows)
        if "client" in rows and "docs/client" in pages:
            pages.append("docs/api/index")
        parts.append("\n".join([f"```{{toctree}}\n:hidden:\n:caption: {title}\n", *pages, "```"]))
    return "\n\n" + "\n\n".join(parts) + "\n"


def interfaces(app: Sphinx) -> Iterator[str]:
    """Describe the interfaces of plugins, with their methods."""

    def described(documented: Any) -> Iterator[str]:
        lines = inspect.cleandoc(documented.getDoc()).splitlines()
        adapt_docstring(app, "method", "", documented, None, lines)
        yield from str(GoogleDocstring(lines, app.config)).splitlines()

    yield from ("", ".. py:currentmodule:: hermes.interfaces")
    for interface in vars(hermes.interfaces).values():
        if not isinstance(interface, InterfaceClass) or not interface.names():
            continue
        yield from ("", f".. py:class:: {interface.__name__}", "")
        yield from (f"   {line}" for line in described(interface))
        for name in interface.names():
            method = interface[name]
            assert isinstance(method, Method)
            yield from ("", f"   .. py:method:: {name}{method.getSignatureString()}", "")
            yield from (f"      {line}" for line in described(method))


def adapt_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Give reStructuredText what Google's style leaves to the reader's eye.

    Of a module only the first paragraph is for users; the rest is a map of it. Examples are code,
    and an asterisk is one.
    """
    if what == "module" and "" in lines:
        del lines[lines.index("") :]
    adapted: list[str] = []
    in_example = False
    for line in lines:
        begins = line.strip() == "Example:"
        in_example = begins or (in_example and line[:1] in ("", " "))
        if in_example and not begins:
            adapted.append(f"    {line}" if line else line)
        else:
            adapted.append(adapted_text(line))
        if begins:
            adapted += ["    .. code-block:: python", ""]
    lines[:] = adapted


def adapted_text(line: str) -> str:
    """Mark code as reStructuredText does, and take no asterisk for a mark."""
    pieces = _CODE.split(line)
    pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
    pieces[1::2] = [f"``{piece}``" for piece in pieces[1::2]]
    return re.sub(r"(?<=\w``)(?=s\b)", r"\\ ", "".join(pieces))  # `Name`s


def skip_fields(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out the fields of named tuples, which their class documents."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def write_index(app: Sphinx, failed: Exception | None) -> None:
    """Open the site at its front page."""
    if failed is None and app.builder.name == "html":
        page = Path(app.outdir, f"{root_doc}.html")
        Path(app.outdir, "index.html").write_bytes(page.read_bytes())
