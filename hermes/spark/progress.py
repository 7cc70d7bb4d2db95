"""A stream's progress as the offsets of a consumer group, for those who watch lags.

It is for monitoring only: `hermes groups` and tools of Kafka 0.7 show it. The stream itself goes
by Spark's checkpoint, and never reads what stands here.
"""

import logging

from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition, GroupPaths, check_node_name
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, GroupActiveError
from hermes.spark.offsets import Offsets

__all__ = ["check_group", "publish"]

_log = logging.getLogger(__name__)


def check_group(session: Session, group: str) -> None:
    """Refuse a group of which others are members: their offsets are their own.

    Raises:
        ConfigError: it is no name for a group.
        GroupActiveError: it has members.
    """
    check_node_name("groupId", group)
    if session.children(GroupPaths(group).ids):
        raise GroupActiveError(
            f"groupId: group {group!r} has members, whose offsets these are; choose another name"
        )


def publish(session: Session, group: str, offsets: Offsets) -> None:
    """Store how far a stream has come, unless the group has members by now.

    What can't be stored is logged: the next time will do.
    """
    places = {
        (each.topic, BrokerPartition(each.broker_id, each.partition)): offset
        for each, offset in offsets.items()
    }
    try:
        store_offsets(session, group, places)
    except CoordinationError as error:
        _log.warning("the progress of group %r is not published: %s", group, error)
