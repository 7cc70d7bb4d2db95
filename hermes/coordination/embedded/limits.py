"""What a client, and all clients together, may cost the embedded server.

Every bound here is one that an honest client does not meet. What happens at it is said with it;
docs/coordination.md has the same list for those who run a broker.
"""

from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

#: How many requests of one client may be without a response before it is not read from.
MAX_OWED: Final = 1000

#: How much may wait to be sent to one client before no further request of it is served.
MAX_OWED_BYTES: Final = _MIB

#: How much may wait for the disk, changes and responses of all clients, before none is served.
MAX_UNCOMMITTED_BYTES: Final = 8 * _MIB

#: What anything that waits for the disk counts in addition to its bytes: sending takes time, too.
ITEM_BYTES: Final = 512

#: How much may be held for all clients together: incomplete frames, and responses that nobody
#: reads. The client that has held some for the longest time is cut off.
MAX_HELD_BYTES: Final = 24 * _MIB

#: What is not held against a client.
SMALL_BYTES: Final = 16 * _KIB

#: A client is heavy when more than this of what it sent waits to be served.
LIGHT_BYTES: Final = 4 * _KIB

#: How long a client may be connected without asking for a session, or leave its last bytes unread.
IDLE_SECONDS: Final = 5.0

#: How long a client may take to authenticate, where that is asked for, the check included.
PROOF_SECONDS: Final = 10.0

#: A frame of a client that has not authenticated, where that is asked for.
MAX_UNPROVEN_FRAME_BYTES: Final = 4 * _KIB

#: Sessions; above it those without a connection and without ephemeral nodes end early.
MAX_SESSIONS: Final = 10_000

#: Operations of one transaction; more are refused (BAD_ARGUMENTS).
MAX_OPERATIONS: Final = 1000

#: Entries of a node's ACL; more are refused (INVALID_ACL).
MAX_ACL_ENTRIES: Final = 100

#: What one connection may prove to be, and how long one proof is; more is refused (AUTH_FAILED).
MAX_IDENTITIES: Final = 50
MAX_CREDENTIAL_BYTES: Final = 1024

#: All nodes, as `tree.node_bytes` weighs them; more are refused (QUOTA_EXCEEDED).
MAX_TREE_BYTES: Final = 64 * _MIB

#: The names of a node's children: a response that lists them stays within a frame. More are refused
#: (QUOTA_EXCEEDED).
MAX_CHILDREN_BYTES: Final = 1_000_000

#: Watches that one request may set again; a request with more is refused (MARSHALLING_ERROR).
#: ZooKeeper's clients send at most 128 KiB of paths in one.
MAX_WATCHES_SET: Final = 10_000

#: Watches, as `watches.watch_bytes` weighs them: of one client, further ones are refused
#: (QUOTA_EXCEEDED); of all clients, the one with most is cut off.
MAX_WATCH_BYTES_PER_CLIENT: Final = 4 * _MIB
MAX_WATCH_BYTES: Final = 24 * _MIB
