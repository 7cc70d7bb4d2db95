"""The nodes of groups of Kafka's consumers in coordination. Pure functions.

    /hermes/kafka/groups/<group>                      persistent   JSON: the group's record
    /hermes/kafka/groups/<group>/<topic>:<partition>  persistent   JSON: a committed offset
    /hermes/kafka/groups/<group>/~<id>~<topic>:<partition>   the same: one that the transaction of
                                                      the producer with this id will commit
    /hermes/kafka/groups/<group>/members              persistent   deflated JSON: its members

In a group's node what a path can't have is written as in URLs, and so is a dot at the beginning;
the empty name is `%`. `<partition>` is Kafka's number. `hermes.groups.offset_tree` has the
values; whoever writes below a group says which version of its node must still be there, so that a
coordinator that was replaced can't.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

KAFKA_GROUPS: Final = "/hermes/kafka/groups"

#: The node with a group's members; those of offsets have a colon.
MEMBERS_NAME: Final = "members"

#: What stands instead of a topic in the name of an offset that isn't committed yet.
_PENDING: Final = re.compile(r"~([0-9]{1,19})~(.+)", re.ASCII | re.DOTALL)

_SAFE: Final = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in "%/")
_EMPTY: Final = "%"


def group_node_name(group: str) -> str:
    name = quote(group, safe=_SAFE)
    return "%2E" + name[1:] if name.startswith(".") else name or _EMPTY


def group_of_node(name: str) -> str:
    return "" if name == _EMPTY else unquote(name)


def group_node_path(group: str) -> str:
    return f"{KAFKA_GROUPS}/{group_node_name(group)}"


def pending_name(producer_id: int, topic: str) -> str:
    """What stands instead of a topic where a producer's transaction will commit, or not."""
    return f"~{producer_id}~{topic}"


def parse_pending_name(name: str) -> tuple[int, str] | None:
    """Read what `pending_name` has written; None for the name of a topic.

    Kafka's names have no tilde, but some of 0.7's may.
    """
    if not name.startswith("~"):
        return None
    found = _PENDING.fullmatch(name)
    return None if found is None else (int(found[1]), found[2])


def parse_offset_name(name: str) -> tuple[str, int] | None:
    """Read the name of an offset's node: topic and partition; None where it is something else."""
    topic, colon, number = name.rpartition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) <= 10
    return (topic, int(number)) if colon and is_number and topic else None
