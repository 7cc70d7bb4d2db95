"""`twistd` under callgrind or strace, with a thread that does what the bench says between requests.

It takes lines from a Unix socket and answers each with one line of JSON:

    mark LABEL      strace sees a system call with this label
    dump LABEL      callgrind writes what it has counted, and begins again with 0
    watch INDEX     collect in this layer only
    layers          [name, Python calls, C calls] of each layer, since the last time
"""

import argparse
import json
import os
import re
import socket
import sys
import threading
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

#: A layer is a room of Hermes, a package that it uses, or Python's own library. Of Twisted's, what
#: Deferreds cost is told apart.
_ROOM = re.compile(r".*/hermes/(\w+)(?:/|\.py$)")
_PACKAGE = re.compile(r".*/site-packages/(\w+)(?:/|\.py$)")
_DEFERREDS = re.compile(r".*/twisted/internet/(?:defer|threads)\.py$")


def layer_of(file_name: str) -> str:
    """The layer that code of this file belongs to."""
    if _DEFERREDS.match(file_name):
        return "twisted: Deferreds"
    if found := _PACKAGE.match(file_name):
        return found[1]
    if found := _ROOM.match(file_name):
        return f"hermes/{found[1]}"
    return "Python's library"


def _load(path: str) -> Any:
    loader = ExtensionFileLoader("collecting", path)
    spec = spec_from_loader("collecting", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _obey(path: str, collecting: Any) -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    with connection, connection.makefile("r") as lines:
        for line in lines:
            order, _, argument = line.strip().partition(" ")
            answer = None
            if order == "mark":
                os.access(argument, os.F_OK)
            elif order == "dump":
                collecting.dump(argument)
            elif order == "watch":
                collecting.watch(int(argument))
            elif order == "layers":
                answer = collecting.layers()
            connection.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Run twistd until it ends."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--control", required=True, help="the socket where the bench listens")
    parser.add_argument("--collecting", type=Path, help="the module that speaks to callgrind")
    parser.add_argument("--layers", action="store_true", help="count by layer")
    arguments, of_twistd = parser.parse_known_args()
    collecting = _load(str(arguments.collecting)) if arguments.collecting else None
    threading.Thread(target=_obey, args=(arguments.control, collecting), daemon=True).start()
    sys.argv = ["twistd", *of_twistd]
    from twisted.scripts.twistd import run

    if arguments.layers:
        collecting.profile(layer_of)
    run()


if __name__ == "__main__":
    main()
