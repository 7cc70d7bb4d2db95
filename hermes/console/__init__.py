"""The web console: pages that show a broker or a whole cluster, and act on it if they may.

From a request to what is sent, in the order of a reading:

    site            a resource of twisted.web: each request becomes a `PageRequest`, each
                    `PageResponse` is sent; pages are made in worker threads, long ones piece by
                    piece
    asking          `PageRequest`, `PageResponse` and `PageRoute`: plain values, so that a page
                    is a function
    viewing         who looks at a page, and what they may see
    access          who looks, and what a form must carry: passwords, sessions, tokens
    login_limit     how often a password may be tried, and by how many at once
    pages           the table of routes; errors become pages
    sources         what the functions of pages read from
    cluster_pages, topic_pages, message_pages, group_pages, schema_pages, mirror_pages,
    audit_pages, topic_forms, group_forms, message_forms
                    the functions
    overview, topics, groups, group_views, mirrors, audits, sampling, messages
                    views: what a page shows, as plain dataclasses
    group_sources   what coordination has about groups of either kind of clients
    resets, kafka_resets
                    what a reset of a group's offsets would do, and does; groups deleted
    topic_changes   topics created, altered and deleted, on the brokers that are to be asked
    producing       a message that was typed, made into bytes and appended
    forms           what was typed into a form, and what is wrong with it, beside the field
    deeds           the line in the log for each change: who has made it
    hiding          what a viewer may not see, taken out of the views
    search, partition_search, tailing, values, records
                    messages looked for and followed; payloads made readable
    cluster, recent, rates, watching
                    where that comes from: connections, what was read a moment ago, how fast
                    numbers grow, many things looked at a few at a time
    rendering, charts, showing
                    values to HTML: `templates/` and what they need; `static/` is sent as it is

It reads through the client library and coordination, and knows no broker: the same pages come from
`http_listen` of a broker and from `hermes console`.

To add a page:

1. write what it shows as a frozen dataclass, with a function that reads it (blocking is fine, and
   so is `ReadCache`, if the page is polled), in a module of views;
2. write a template that extends base.html: headings in order, a label for every field, an
   element with `data-live="KEY"` for each part that changes by itself, and `data-refresh` (in ms)
   on `main` for how often. The script fetches the page again and takes over those parts; there
   is no other interface, so a page works without script as well. Put names and payloads in with
   `{{ }}`, which escapes them, `|part` within an address, and `|printable` where controls and
   directions matter. No `style=`, no `on...=`, no inline script: the policy forbids them;
3. write `def _page(sources, ask, *parts) -> PageResponse`, which ends in `sources.page(...)`, and
   add a `PageRoute` to the `ROUTES` of a module of pages. What changes something is a POST, whose
   form has `<input type="hidden" name="csrf" value="{{ csrf }}">`; `Access` has checked the
   token and `console_actions` by then. What is wrong is a `FieldError`, and the same page as a
   `Form` with what was typed; what was done ends in `note_deed` and a `redirect`. `acts=True` on
   its routes hides such pages unless `console_actions` is set;
4. add it to the navigation in `pages`, if it belongs there, to the Chromium suite
   (tests/integration/console), and to docs/console.md.
"""

from hermes.console.access import Access, Password, hash_password
from hermes.console.cluster import ClusterClient, ListenAddress
from hermes.console.deeds import DEEDS_LOGGER
from hermes.console.pages import Console
from hermes.console.records import RegistryRecords
from hermes.console.site import ConsoleResource, serve_console

__all__ = [
    "DEEDS_LOGGER",
    "Access",
    "ClusterClient",
    "Console",
    "ConsoleResource",
    "ListenAddress",
    "Password",
    "RegistryRecords",
    "hash_password",
    "serve_console",
]
