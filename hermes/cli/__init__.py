"""The command line `hermes`: one file a command, on top of the client library and the storage.

`app` holds the table of commands and turns every outcome into an exit code; a command's module is
imported only when the command is asked for, so that `hermes --version` stays quick.
"""

from hermes.cli.app import main, program

__all__ = ["main", "program"]
