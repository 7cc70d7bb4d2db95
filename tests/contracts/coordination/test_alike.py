"""Both servers get the same random requests and must do and say the same."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from embedded_coordination_process import EmbeddedCoordinationProcess
from kazoo.exceptions import ZookeeperError
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Create2,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    SetACL,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import Callback, ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, make_acl
from zookeeper_process import ZooKeeperProcess

PATHS = ["", "/a", "/b", "/a/b", "/a/c", "/a/b/c", "/b/n-0000000000", "/b/n-", "/b/", "/a//b"]
ACLS = [
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    CREATOR_ALL_ACL,
    [],
    [make_acl("ip", "127.0.0.1", read=True, delete=True, create=True)],
    [make_acl("world", "anyone", write=True), make_acl("digest", "u:x", all=True)],
    [ACL(31, Id("world", "nobody"))],
    [*READ_ACL_UNSAFE, *CREATOR_ALL_ACL],
]
REQUESTS = 400


class Player:
    """Draws requests; the same ones from the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.paths = [f"/seed-{seed}{path}" for path in PATHS]

    def request(self, watch: Any) -> Any:
        draw = self.random
        path, watch = draw.choice(self.paths), draw.choice([watch, None])
        makers: list[Callable[[], Any]] = [
            *[lambda: draw.choice(self.operations())] * 4,
            lambda: Transaction([self.part() for _ in range(draw.randint(0, 4))]),
            lambda: SetACL(path, self.acl(), self.version()),
            lambda: Exists(path, watch),
            lambda: GetData(path, watch),
            lambda: GetChildren(path, watch),
            lambda: GetChildren2(path, watch),
            lambda: GetACL(path),
            lambda: Sync(path),
            lambda: Create2(path, self.data(), self.acl(), draw.randint(0, 3)),
        ]
        return draw.choice(makers)()

    def part(self) -> Any:
        """Of a transaction."""
        check = CheckVersion(self.random.choice(self.paths), self.version())
        return self.random.choice([*self.operations(), check])

    def operations(self) -> list[Any]:
        draw, path = self.random, self.random.choice(self.paths)
        return [
            Create(path, self.data(), self.acl(), draw.choice([0, 0, 0, 1, 2, 3])),
            Create(path, self.data(), OPEN_ACL_UNSAFE, 0),
            Delete(path, self.version()),
            SetData(path, self.data(), self.version()),
        ]

    def acl(self) -> Any:
        return self.random.choice([OPEN_ACL_UNSAFE] * 6 + ACLS)

    def data(self) -> bytes | None:
        return self.random.choice([None, b"", b"data"])

    def version(self) -> int:
        return self.random.choice([-1, -1, -1, 0, 1])


class Side:
    """One server, and a client of it that writes down what it hears."""

    def __init__(self, server: Any, make_client: Callable[..., Any]) -> None:
        self.client = make_client(server.address)
        self.events: list[tuple[str, str]] = []

    def watch(self, event: Any) -> None:
        self.events.append((event.type, event.path))

    def ask(self, request: Any) -> Any:
        result = self.client.handler.async_result()
        self.client._call(request, result)
        try:
            return plain(result.get(20))
        except ZookeeperError as error:
            return type(error)

    def settle(self) -> None:
        """Wait until what was heard is written down."""
        done = self.client.handler.event_object()
        self.client.handler.dispatch_callback(Callback("watch", done.set, ()))
        assert done.wait(20)

    def tree(self, path: str) -> dict[str, Any]:
        """All that can be seen of a path and what is below."""
        found = {path: (self.ask(GetData(path, None)), self.ask(GetACL(path)))}
        children = self.ask(GetChildren(path, None))
        for name in children if isinstance(children, list) else ():
            found |= self.tree(f"{path}/{name}")
        return found


def plain(result: Any) -> Any:
    """An answer without what must differ: times, sessions, the numbers of transactions."""
    if isinstance(result, ZnodeStat):
        order = (result.czxid == result.mzxid, result.czxid == result.pzxid)
        late = (result.mzxid > result.pzxid, result.ctime <= result.mtime)
        counts = (result.version, result.cversion, result.aversion)
        return (
            counts,
            result.dataLength,
            result.numChildren,
            result.ephemeralOwner > 0,
            order,
            late,
        )
    if isinstance(result, ZookeeperError):
        return type(result)
    if isinstance(result, list) and all(isinstance(each, str) for each in result):
        return sorted(result)
    if isinstance(result, list | tuple) and not isinstance(result, ACL | Id):
        return [plain(each) for each in result]
    return result


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """A server of each kind, for these tests alone."""
    directory = tmp_path_factory.mktemp("alike")
    servers = [
        ZooKeeperProcess(directory / "zookeeper"),
        EmbeddedCoordinationProcess(directory / "embedded"),
    ]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.stop()


@pytest.mark.parametrize("seed", range(4))
def test_both_servers_do_the_same(
    both: list[Any], make_client: Callable[..., Any], seed: int
) -> None:
    sides = [Side(server, make_client) for server in both]
    player = Player(seed)
    for number in range(REQUESTS):
        if number == REQUESTS // 4:
            for side in sides:
                side.client.add_auth("digest", "u:p")
        request = player.request(True)
        answers = []
        for side in sides:
            if getattr(request, "watcher", None):
                request = request._replace(watcher=side.watch)
            answers.append(side.ask(request))
        assert answers[1] == answers[0], request
    for side in sides:
        side.settle()
    assert sides[1].events == sides[0].events
    assert sides[0].tree(f"/seed-{seed}") == sides[1].tree(f"/seed-{seed}")
