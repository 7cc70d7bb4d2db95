"""What a process did to its files, as strace saw it; strace knows nothing of Hermes.

`TRACED` are the options for strace; `read_trace` makes `Trace` of what it wrote: the files and
directories below one folder, each with its changes and syncs in the order in which they began. A
moment is the number of a line of the trace: every call that had ended before that line has had its
effect, those that had only begun may have had it or not.

Whatever is done to these files in a way that isn't modelled here raises: a trace that was only
half understood would prove nothing.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CALLS", "FILE_CALLS", "Change", "Node", "Trace", "read_trace", "strace_command", "tree"]

#: What changes files.
FILE_CALLS = (
    "openat,open,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,pwritev2,ftruncate,"
    "truncate,fallocate,copy_file_range,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,"
    "mkdirat,link,linkat,symlink,symlinkat,fsync,fdatasync"
)
_SOCKET_CALLS = "getsockname,accept4,sendto,sendmsg,sendfile"

#: What is traced.
CALLS = f"{FILE_CALLS},{_SOCKET_CALLS}"

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$", re.DOTALL)
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_UNFINISHED = " <unfinished ...>"
_NEVER = 1 << 60


def strace_command(output: Path, calls: str = CALLS) -> list[str]:
    """What to put before a command; the command keeps its own process id and its parent."""
    options = ["-D", "-f", "-q", "-v", "-xx", "-s", "4194304", "--seccomp-bpf"]
    return ["strace", *options, "-e", f"trace={calls}", "-o", str(output)]


@dataclass
class Change:
    """One change to a file's bytes or to a directory's names.

    Attributes:
        begin: the moment at which the call began.
        end: the moment at which it returned.
        position: where bytes are written; or the new size, for a truncation.
        data: what is written; None for a truncation.
        names: for a directory: name -> what it stands for from now on, None for nothing.
    """

    begin: int
    end: int
    position: int = 0
    data: bytes | None = None
    names: "dict[str, Node | None]" = field(default_factory=dict)


@dataclass(eq=False)
class Node:
    """A file or a directory, whatever its names.

    Attributes:
        is_directory: which of the two.
        changes: in the order in which they began.
        syncs: when fsync or fdatasync began and when it returned.
        entries: what a directory holds now that every change has been made.
    """

    is_directory: bool
    changes: list[Change] = field(default_factory=list)
    syncs: list[tuple[int, int]] = field(default_factory=list)
    entries: "dict[str, Node | None]" = field(default_factory=dict)

    def name(self, call: "_Call", names: "dict[str, Node | None]") -> None:
        """Change what names of a directory stand for."""
        self.changes.append(Change(call.begin, call.end, names=names))
        self.entries.update(names)


@dataclass
class Trace:
    """A process's life.

    Attributes:
        root: the folder.
        moments: how many there are.
        sent: the port that was connected to and the peer's -> what was sent, as (moment, bytes) for
            each call; of two connections to two ports the peer's may be the same. What sendfile
            sent are zeros.
    """

    root: Node
    moments: int = 0
    sent: dict[tuple[int, int], list[tuple[int, bytes]]] = field(default_factory=dict)


@dataclass
class _Call:
    name: str
    begin: int
    end: int
    arguments: str
    result: int


def tree(path: Path) -> Node:
    """What is at a path now, as if all of it were on the disk; an empty folder if nothing is."""
    node = Node(is_directory=path.is_dir() or not path.exists())
    before = Change(-2, -2)
    if not node.is_directory:
        before.data = path.read_bytes()
    elif path.exists():
        before.names = {each.name: tree(each) for each in path.iterdir()}
        node.entries.update(before.names)
    node.changes.append(before)
    node.syncs.append((-1, -1))
    return node


def read_trace(path: Path, folder: Path, before: Node | None = None) -> Trace:
    """Read what strace wrote.

    Args:
        path: its output.
        folder: only what is below it counts.
        before: the `tree` that it was when the process started; None for an empty one.
    """
    reader = _Reader(str(folder), before or Node(is_directory=True))
    for call in _calls(path):
        reader.apply(call)
        reader.trace.moments = max(reader.trace.moments, call.begin)
    return reader.trace


def _calls(path: Path) -> Iterator[_Call]:
    """The calls in the order in which they returned; those that never did come last.

    Only a close comes when it begins: another thread may get the same number before it returns.
    """
    unfinished: dict[str, _Call] = {}
    with open(path, encoding="ascii") as lines:
        for number, line in enumerate(lines):
            match = _LINE.match(line.rstrip("\n"))
            if match is None:
                continue  # the end of a thread
            thread, resumed, name, rest = match.groups()
            if resumed == "close":
                continue
            if resumed:
                call = unfinished.pop(thread)
                call.arguments += rest
            else:
                call = _Call(name, number, _NEVER, rest, -1)
            if name == "close":
                call.end = number
                yield call
                continue
            if call.arguments.endswith(_UNFINISHED):
                call.arguments = call.arguments.removesuffix(_UNFINISHED)
                unfinished[thread] = call
                continue
            call.arguments, _, result = call.arguments.rpartition(" = ")
            status = re.match(r"-?\d+", result)
            if status is None:
                unfinished[thread] = call  # `= ?`: the process was killed in it
                continue
            call.end, call.result = number, int(status[0])
            yield call
    yield from unfinished.values()


class _Reader:
    """Follows descriptors and paths through the calls."""

    def __init__(self, folder: str, before: Node) -> None:
        self.trace = Trace(before)
        self._folder = folder
        self._opened: dict[int, Node] = {}
        self._positions: dict[int, int] = {}
        self._listening: dict[int, int] = {}
        self._peers: dict[int, tuple[int, int]] = {}

    def apply(self, call: _Call) -> None:
        failed = call.end != _NEVER and call.result < 0
        if not failed:
            getattr(self, f"_{call.name}", self._unknown)(call, _strings(call.arguments))

    def _unknown(self, call: _Call, strings: list[bytes]) -> None:
        concerned = any(os.fsdecode(each).startswith(self._folder) for each in strings)
        if concerned or self._node(call) is not None:
            raise ValueError(f"not modelled: {call.name}({call.arguments[:200]})")

    # -- descriptors ----------------------------------------------------------------------------

    def _openat(self, call: _Call, strings: list[bytes]) -> None:
        path = os.fsdecode(strings[0])
        found = self._find(path)
        if found is None:
            return
        parent, name = found
        node = self.trace.root if parent is None else parent.entries.get(name)
        if node is None:
            assert parent is not None
            node = Node(is_directory=False)
            parent.name(call, {name: node})
        elif "O_TRUNC" in call.arguments:
            node.changes.append(Change(call.begin, call.end, 0))
        if call.end != _NEVER:
            self._opened[call.result] = node
            self._positions[call.result] = 0
            self._peers.pop(call.result, None)

    def _close(self, call: _Call, strings: list[bytes]) -> None:
        for known in (self._opened, self._positions, self._listening, self._peers):
            known.pop(_descriptor(call), None)

    def _getsockname(self, call: _Call, strings: list[bytes]) -> None:
        port = _port(call)
        if port is not None:  # Twisted asks for it when it begins to listen
            self._listening[_descriptor(call)] = port

    def _accept4(self, call: _Call, strings: list[bytes]) -> None:
        port = _port(call)
        if port is not None and call.end != _NEVER:
            self._peers[call.result] = self._listening[_descriptor(call)], port

    def _fcntl(self, call: _Call, strings: list[bytes]) -> None:
        if "F_DUPFD" in call.arguments and self._node(call) is not None:
            self._opened[call.result] = self._opened[_descriptor(call)]

    # -- bytes ----------------------------------------------------------------------------------

    def _pwrite64(self, call: _Call, strings: list[bytes]) -> None:
        node = self._node(call)
        if node is not None:
            self._written(node, call, b"".join(strings), _number(call, -1))

    _pwritev = _pwrite64

    def _pwritev2(self, call: _Call, strings: list[bytes]) -> None:
        node = self._node(call)
        if node is not None:  # flags come last
            self._written(node, call, b"".join(strings), _number(call, -2))

    def _write(self, call: _Call, strings: list[bytes]) -> None:
        node = self._node(call)
        if node is None:
            self._sent(call, b"".join(strings))
            return
        position = self._positions[_descriptor(call)]
        self._positions[_descriptor(call)] += max(call.result, 0)
        self._written(node, call, b"".join(strings), position)

    def _written(self, node: Node, call: _Call, data: bytes, position: int) -> None:
        if call.end != _NEVER:
            data = data[: call.result]
        node.changes.append(Change(call.begin, call.end, position, data))

    def _ftruncate(self, call: _Call, strings: list[bytes]) -> None:
        node = self._node(call)
        if node is not None:
            node.changes.append(Change(call.begin, call.end, _number(call, -1)))

    def _fsync(self, call: _Call, strings: list[bytes]) -> None:
        node = self._node(call)
        if node is not None and call.end != _NEVER:
            node.syncs.append((call.begin, call.end))

    _fdatasync = _fsync

    # -- names ----------------------------------------------------------------------------------

    def _mkdir(self, call: _Call, strings: list[bytes]) -> None:
        self._name(call, strings[0], Node(is_directory=True))

    def _unlink(self, call: _Call, strings: list[bytes]) -> None:
        self._name(call, strings[0], None)

    _rmdir = _unlink

    def _rename(self, call: _Call, strings: list[bytes]) -> None:
        source, target = (self._find(os.fsdecode(each)) for each in strings)
        if source is None and target is None:
            return
        if source is None or target is None or source[0] is None or source[0] is not target[0]:
            raise ValueError(f"not modelled: a rename from folder to folder: {strings}")
        source[0].name(call, {target[1]: source[0].entries[source[1]], source[1]: None})

    def _name(self, call: _Call, path: bytes, node: Node | None) -> None:
        found = self._find(os.fsdecode(path))
        if found is not None and found[0] is not None:
            found[0].name(call, {found[1]: node})

    def _find(self, path: str) -> tuple[Node | None, str] | None:
        """The directory and the name that a path means; no directory for the folder itself."""
        if path == self._folder:
            return None, ""
        if not path.startswith(self._folder + "/"):
            return None
        *directories, name = path.removeprefix(self._folder + "/").split("/")
        node = self.trace.root
        for each in directories:
            child = node.entries[each]
            assert child is not None, path
            node = child
        return node, name

    # -- sockets --------------------------------------------------------------------------------

    def _sendto(self, call: _Call, strings: list[bytes]) -> None:
        self._sent(call, b"".join(strings))

    def _sendmsg(self, call: _Call, strings: list[bytes]) -> None:
        self._sent(call, b"".join(strings))

    def _sendfile(self, call: _Call, strings: list[bytes]) -> None:
        self._sent(call, bytes(max(call.result, 0)))

    def _sent(self, call: _Call, data: bytes) -> None:
        peer = self._peers.get(_descriptor(call))
        if peer is not None and call.end != _NEVER:
            self.trace.sent.setdefault(peer, []).append((call.begin, data[: call.result]))

    def _node(self, call: _Call) -> Node | None:
        return self._opened.get(_descriptor(call))


def _descriptor(call: _Call) -> int:
    match = re.match(r"\d+", call.arguments)
    return int(match[0]) if match else -1


def _port(call: _Call) -> int | None:
    match = re.search(r"sin_port=htons\((\d+)\)", call.arguments)
    return int(match[1]) if match else None


def _number(call: _Call, place: int) -> int:
    """One of a call's last arguments."""
    return int(call.arguments.rstrip(") ").split(", ")[place])


def _strings(arguments: str) -> list[bytes]:
    found = []
    for match in _STRING.finditer(arguments):
        if match[2]:
            raise ValueError("strace cut a string short")
        found.append(bytes.fromhex(match[1].replace("\\x", "")))
    return found
