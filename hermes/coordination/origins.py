"""From which clusters a topic's messages were mirrored, so that no mirror makes a loop.

    /cluster/origins/<topic>    persistent    {"origins": {"<cluster's id>": "<mirror's name>"}}

A mirror writes there, in the cluster that it writes to, the cluster that it reads from and the
origins that the topic has over there. So each cluster knows all clusters before it, however many
mirrors are in between. Entries stay when a mirror stops, since the messages do.

The functions take a session with the cluster that has the topic. They raise
CoordinationUnavailableError when it doesn't answer, and InvalidNodeError for a broken node.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Final

from hermes.coordination.layout import ORIGINS
from hermes.coordination.nodes import TreeSession
from hermes.errors import CoordinationUnavailableError, InvalidNodeError
from hermes.quoting import quoted

#: How many clusters a topic may come from.
MOST_ORIGINS: Final = 1000
_LONGEST_NAME: Final = 512
_ATTEMPTS: Final = 10


def read_origins(session: TreeSession, topic: str) -> Mapping[str, str]:
    """The clusters, by id, whose messages a topic may hold beside its own, and who said so."""
    path = f"{ORIGINS}/{topic}"
    node = session.get(path)
    return {} if node is None else _parse(path, node.value)


def add_origins(session: TreeSession, topic: str, origins: Mapping[str, str]) -> list[str]:
    """Add clusters to those that a topic has already; returns the ids that are new.

    Raises InvalidNodeError: the node can't be understood, or would become too much;
    CoordinationUnavailableError: also when others change the node all the time.
    """
    path = f"{ORIGINS}/{topic}"
    for attempt in range(_ATTEMPTS):
        node = session.get(path)
        known = {} if node is None else _parse(path, node.value)
        new = [each for each in origins if each not in known]
        if not new:
            return []
        merged = {**known, **{each: origins[each] for each in new}}
        if len(merged) > MOST_ORIGINS:
            raise InvalidNodeError(f"{path}: no topic comes from more than {MOST_ORIGINS} clusters")
        if node is None:
            if session.create(path, _format(merged)):
                return new
            continue
        try:
            session.set(path, _format(merged), node.version)
        except CoordinationUnavailableError:  # or somebody else was quicker: the next read says
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return new
    raise CoordinationUnavailableError(f"{path}: others change it all the time")


def remove_origins(session: TreeSession, topic: str, clusters: list[str]) -> None:
    """Remove what `add_origins` has added, before any message was sent."""
    path = f"{ORIGINS}/{topic}"
    node = session.get(path)
    if node is None:
        return
    left = {each: by for each, by in _parse(path, node.value).items() if each not in clusters}
    if left:
        session.set(path, _format(left), node.version)
    else:
        session.delete(path, node.version)


def list_origins(session: TreeSession) -> dict[str, Mapping[str, str] | InvalidNodeError]:
    """The origins of all topics that have any; the error where they can't be understood."""
    found: dict[str, Mapping[str, str] | InvalidNodeError] = {}
    for topic in session.children(ORIGINS):
        try:
            found[topic] = read_origins(session, topic)
        except InvalidNodeError as error:
            found[topic] = error
    return found


def forget_origins(session: TreeSession, topic: str) -> bool:
    """Delete a topic's origins; returns whether there were any.

    For a topic that was deleted and made anew, or whose mirror is to be turned round.
    """
    return session.delete(f"{ORIGINS}/{topic}", -1)


class TreeOrigins:
    """The origins of topics in one cluster's coordination."""

    def __init__(self, session: TreeSession) -> None:
        self.read = partial(read_origins, session)
        self.add = partial(add_origins, session)
        self.remove = partial(remove_origins, session)


def _format(origins: Mapping[str, str]) -> bytes:
    return json.dumps({"origins": dict(sorted(origins.items()))}).encode()


def _parse(path: str, value: bytes) -> dict[str, str]:
    try:
        origins = json.loads(value)["origins"]
        if not isinstance(origins, dict) or len(origins) > MOST_ORIGINS:
            raise ValueError
        pairs = origins.items()
        if not all(
            isinstance(by, str) and len(by) + len(each) <= _LONGEST_NAME for each, by in pairs
        ):
            raise ValueError
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidNodeError(
            f'{path}: expected {{"origins": {{"<cluster>": "<mirror>"}}}}, got {quoted(value)}'
        ) from error
    return origins
