"""A redrive's states; nothing is connected."""

import pytest

from hermes.client.retrying.redrive import LetterFilter
from hermes.console.dead_letters import TO_GROUP
from hermes.console.page_request import PageRequest
from hermes.console.redrive import DONE, Redrive, RedriveOrder, Redrives

ORDER = RedriveOrder("t.g.dead", LetterFilter(), TO_GROUP, None, {"0-0": (5, 5)})
REQUEST = PageRequest("POST", ())


class EndsMeanwhile(Redrive):
    """One that ends just after somebody has looked whether it runs."""

    _has_run = False

    def end(self) -> None:
        if not self._has_run:
            self._has_run = True
            self._run()

    @property
    def is_running(self) -> bool:
        was_running = super().is_running
        self.end()
        return was_running


def test_one_that_ends_while_it_is_stopped_has_ended() -> None:
    """Else there could be no other of its topic until the console is started again."""
    redrive = EndsMeanwhile(None, None, ORDER, REQUEST)  # type: ignore[arg-type]
    redrive.stop()
    redrive.end()
    assert (redrive.state, redrive.is_running) == (DONE, False)


def test_one_for_which_there_is_no_thread_does_not_count_as_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Redrive) -> None:
        raise RuntimeError("can't start new thread")

    redrives = Redrives(None, None)  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        patched.setattr(Redrive, "start", fail)
        with pytest.raises(RuntimeError):
            redrives.start(ORDER, REQUEST)
    redrives.start(ORDER, REQUEST).join(60)
