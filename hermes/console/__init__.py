"""The web console: pages that show a broker or a whole cluster, and act on it if they may.

A request passes `site` (a Twisted resource, which makes pages in worker threads), `sessions` (login
and CSRF) and `pages` (the routes, and what each requires of its `viewer`), and ends in a function
of a module `*_pages` or `*_forms`, from a `PageRequest` to a `PageResponse`: plain values. These
functions read through `Sources` what views hold as plain dataclasses, without what the viewer may
not see (`visibility`), and render the templates beside them. What changes something goes through
`topic_changes`, `group_changes` or `message_sender`, and leaves a line in the log (`change_log`).

The console reads through the client library and coordination, and knows no broker: the same pages
come from `http_listen` of a broker and from `hermes console`.

To add a page:

1. write what it shows as a frozen dataclass, with a function that reads it (blocking is fine, and
   so is `ReadCache`, if the page is polled), in a module of views;
2. write a template that extends base.html: headings in order, a label for every field, an
   element with `data-live="KEY"` for each part that changes by itself, and `data-refresh` (in ms)
   on `main` for how often. The script fetches the page again and takes over those parts; there
   is no other interface, so a page works without script as well. Put names and payloads in with
   `{{ }}`, which escapes them, `|part` within an address, and `|printable` where controls and
   directions matter. No `style=`, no `on...=`, no inline script: the policy forbids them;
3. write `def _page(sources, request, *parts) -> PageResponse`, which ends in `sources.page(...)`,
   and add a `PageRoute` to the `ROUTES` of a module of pages. What changes something is a POST,
   whose form has `<input type="hidden" name="csrf" value="{{ csrf }}">`; `Access` has checked the
   token and `console_actions` by then. What is wrong is a `FieldError`, and the same page as a
   `Form` with what was typed; what was done ends in `log_change` and a `redirect`. `acts=True` on
   its routes hides such pages unless `console_actions` is set;
4. add it to the navigation in `pages`, if it belongs there, to the Chromium suite
   (tests/integration/console), and to docs/console.md.
"""

from hermes.console.change_log import CHANGES_LOGGER
from hermes.console.cluster_client import ClusterClient
from hermes.console.pages import Console
from hermes.console.registry_records import RegistryRecords
from hermes.console.sessions import Access, Password, hash_password
from hermes.console.site import ConsoleResource, serve_console

__all__ = [
    "CHANGES_LOGGER",
    "Access",
    "ClusterClient",
    "Console",
    "ConsoleResource",
    "Password",
    "RegistryRecords",
    "hash_password",
    "serve_console",
]
