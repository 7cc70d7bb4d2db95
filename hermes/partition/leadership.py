"""Of a partition with several copies: who may append to it, and answer for it."""

from typing import Final, Protocol

from twisted.internet.defer import Deferred, fail, succeed

from hermes.errors import NotLeaderError


class Leadership(Protocol):
    """Of a partition with several copies: what this broker may do with its own.

    Attributes:
        epoch: in which it leads, or is led.
        leader: who does, as far as the copy knows; -1 for nobody.
        is_handing_over: whether it takes nothing more, since another broker is about to lead.
        is_end_known: whether it knows what earlier epochs have committed; before that nobody is to
            be told of an end.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def leader(self) -> int: ...

    @property
    def is_handing_over(self) -> bool: ...

    @property
    def is_end_known(self) -> bool: ...

    def check(self) -> None:
        """Raise NotLeaderError unless nobody else can have become leader."""

    def check_append(self) -> None:
        """The same, before an append: one that hands over takes nothing more."""

    def check_enough(self) -> None:
        """Raise TooFewReplicasError where what is appended wouldn't be committed."""

    def when_confirmed(self) -> "Deferred[bool]":
        """Fires once followers have said that nobody else led as this was called; False if not.

        A producer that is told to be out of step numbers its messages anew: by one who has a
        successor already, and doesn't know, it would be made to send some twice.
        """

    def when_handed_over(self) -> "Deferred[bool]":
        """Fires with False once another broker leads, or none will soon.

        Until then a client that is refused can't be told whom to ask, and would ask in vain.
        """

    def when_deleted(self, offset: int) -> "Deferred[int]":
        """Fires once no in-sync copy shows anything before an offset, with before which none does.

        Fails with NotLeaderError once another broker leads. Who waits no more cancels it.
        """

    def appended(self) -> None:
        """Something was appended: those who copy it are to hear of it."""

    def no_room(self) -> None:
        """The disk had no room for an append: another broker is to lead, if one can."""


class _Nobodys:
    """Of a copy of which it isn't known yet who leads it."""

    epoch = leader = -1
    is_end_known = is_handing_over = False

    def check(self) -> None:
        raise NotLeaderError("it isn't known yet who leads the partition")

    check_append = check_enough = check

    def when_confirmed(self) -> "Deferred[bool]":
        return succeed(False)

    when_handed_over = when_confirmed

    def when_deleted(self, offset: int) -> "Deferred[int]":
        return fail(NotLeaderError("it isn't known yet who leads the partition"))

    def appended(self) -> None:
        """Nothing ever is."""

    no_room = appended


NOBODYS: Final[Leadership] = _Nobodys()


def is_led(leadership: Leadership | None) -> bool:
    """Whether this broker may tell the end of its copy."""
    if leadership is None:
        return True
    try:
        leadership.check()
    except NotLeaderError:
        return False
    return leadership.is_end_known
