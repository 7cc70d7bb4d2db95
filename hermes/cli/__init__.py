"""The command line `hermes`, on top of the client library and the storage.

`app` has the table of commands. Most have a module of their own, imported only when the command is
run, so that `hermes --version` stays quick. The other modules are what they share.
"""

from hermes.cli.app import main, program

__all__ = ["main", "program"]
