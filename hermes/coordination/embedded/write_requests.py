"""Requests that change nodes: what they do in a transaction, and what they answer.

Source: ZooKeeper's `PrepRequestProcessor` and `FinalRequestProcessor`.
"""

from typing import TypeAlias

from hermes.coordination.embedded.jute import encode_string
from hermes.coordination.embedded.transaction import Transaction
from hermes.coordination.embedded.tree import DataTree
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError
from hermes.coordination.embedded.zookeeper_requests import (
    CheckRequest,
    CreateRequest,
    DeleteRequest,
    MultiRequest,
    OpCode,
    Operation,
    SetAclRequest,
    SetDataRequest,
)
from hermes.coordination.embedded.zookeeper_responses import encode_failed_results, encode_results

#: What `serve_write` serves.
WriteRequest: TypeAlias = Operation | MultiRequest | SetAclRequest


def serve_write(tree: DataTree, transaction: Transaction, request: WriteRequest) -> bytes:
    """Carry out a request in a new transaction, which the caller commits; make the response.

    Where it is refused (RequestRefusedError), nothing was done.
    """
    match request:
        case MultiRequest(operations):
            return _serve_all(tree, transaction, operations)
        case SetAclRequest():
            return transaction.set_acl(request).stat.encode()
        case _:
            return _serve_one(tree, transaction, request)[1]


def _serve_all(
    tree: DataTree, transaction: Transaction, operations: tuple[Operation, ...]
) -> bytes:
    results = []
    for index, operation in enumerate(operations):
        try:
            results.append(_serve_one(tree, transaction, operation))
        except RequestRefusedError as refusal:
            transaction.rollback()
            return encode_failed_results(index, len(operations), refusal.code)
    return encode_results(results)


def _serve_one(
    tree: DataTree, transaction: Transaction, operation: Operation
) -> tuple[OpCode, bytes]:
    match operation:
        case CreateRequest(with_stat=with_stat):
            path = transaction.create(operation)
            if not with_stat:
                return OpCode.CREATE, encode_string(path)
            return OpCode.CREATE2, encode_string(path) + tree.node(path).stat.encode()
        case DeleteRequest():
            transaction.delete(operation)
            return OpCode.DELETE, b""
        case SetDataRequest():
            return OpCode.SET_DATA, transaction.set_data(operation).stat.encode()
        case CheckRequest():
            transaction.check(operation)
            return OpCode.CHECK, b""
