"""The command line `hermes`, on top of the client library and the storage.

`app` has the table of commands, most of them with a module of their own, which is imported only
when the command is asked for, so that `hermes --version` stays quick. They share:

    exits        exit codes, and the one line that an error becomes
    terminal     notes, progress, tables and JSON
    options      options and types of their values; places: offsets and times as people write them
    security     authentication: certificates, user and password, for every connection
    listening    where commands that serve listen, and for whom
    zookeeper    where groups are coordinated, and the brokers registered there
    lines        a file or a stream in batches of lines; sending: batches to a broker
    topic_source what a topic holds; positions: where to start in it; reading: its messages
    formats      messages as they are written; retrying: while a broker is unavailable
"""

from hermes.cli.app import main, program

__all__ = ["main", "program"]
