"""Threads that are the test's own: what is given to them happens at once."""

from twisted.internet.task import Clock
from twisted.python.failure import Failure

__all__ = ["NoThreads", "Reactor"]


class NoThreads:
    """A pool that calls at once."""

    def __init__(self, *arguments):
        pass

    def start(self):
        pass

    def callInThreadWithCallback(self, done, call, *arguments, **options):
        try:
            result = call(*arguments, **options)
        except BaseException:
            done(False, Failure())
        else:
            done(True, result)


class Reactor(Clock):
    def callFromThread(self, call, *arguments):
        call(*arguments)
