"""ZooKeeper's error codes, and the exception that carries one to the response of a request.

The codes are those of ZooKeeper's `KeeperException.Code`; only what this server can answer is here.
"""

from enum import IntEnum

from hermes.errors import HermesError, StorageError


class ZooKeeperCode(IntEnum):
    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114
    AUTH_FAILED = -115
    RECONFIGURATION_DISABLED = -123
    AUTHENTICATION_REQUIRED = -124
    QUOTA_EXCEEDED = -125


class RequestRefusedError(HermesError):
    """A request can't be carried out, and nothing of it was; the client is answered with `code`.

    It never leaves the server as itself.
    """

    def __init__(self, code: ZooKeeperCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code = code


class OutOfServiceError(StorageError):
    """Nothing can be served from the embedded server's file, for now."""


class DamagedError(OutOfServiceError):
    """The embedded server's file is not what was written; serving it would be serving a lie."""
