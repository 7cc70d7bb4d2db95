"""What the pages that reset groups show before anything is changed."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.console import group_forms
from hermes.console.forms import WHOLE
from hermes.console.group_changes import OffsetChange


class Sources:
    """Changes that a reset would make; the page is what it is made of."""

    def __init__(self, count: int) -> None:
        found = [OffsetChange("clicks", f"0-{n}", 10**9, 10**9 + n, None) for n in range(count)]
        changer = SimpleNamespace(preview=lambda *_: found)
        self.group_changes = {"": changer}

    def form_page(self, *shown: Any, **values: Any) -> Any:
        return SimpleNamespace(errors=shown[-1].errors, **values)


@pytest.mark.parametrize(("count", "fits"), [(3, True), (900, True), (3_000, False)])
def test_more_offsets_than_a_form_can_hold_are_for_the_command(
    count: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = SimpleNamespace(topics=["clicks"])
    reader = SimpleNamespace(kind="", group=lambda name: topics)
    monkeypatch.setattr(group_forms, "_reader", lambda *_: reader)
    query = {"topic": "", "to": "latest", "value": ""}
    viewer = SimpleNamespace(sees_topic=lambda topic: True)
    request = SimpleNamespace(query=query, text=query.__getitem__, viewer=viewer)
    page: Any = group_forms._preview(Sources(count), request, "g")  # type: ignore[arg-type]
    if fits:
        assert (page.errors, len(page.changes)) == ({}, count)
        assert len(group_forms._shown_changes(page.given)) == count
    else:
        assert page.changes == []
        assert page.errors[WHOLE] == (
            "3000 offsets are more than a page can change: choose one topic, or use "
            "hermes groups reset."
        )
