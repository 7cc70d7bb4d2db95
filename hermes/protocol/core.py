"""The loops that run once per message: compiled if they were built, otherwise in Python.

`HERMES_PURE=1` in the environment chooses Python's. `loops` documents what each one does.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hermes.protocol import loops

__all__ = [
    "KIND",
    "AsyncSupply",
    "Rows",
    "Supply",
    "Term",
    "check_records",
    "collect_produces",
    "count_plain",
    "count_uncompressed",
    "encode_plain",
    "iterate",
    "java_partitions",
    "pack_plain",
    "plain_fetch",
    "plain_produce",
    "single_fetch",
    "single_fetched",
    "tally",
    "tally_records",
    "whole_batches",
    "whole_bytes",
    "whole_message",
    "whole_request",
]


def _compiled() -> ModuleType | None:
    if os.environ.get("HERMES_PURE", "0") not in ("", "0"):
        return None
    try:
        core = import_module("hermes.protocol._core")
    # No compiler was available, or the build is for another Python: a free-threaded one loads it,
    # and finds out only then.
    except (ImportError, SystemError):
        return None
    # One that was built before the sources beside it changed is as good as none.
    names = (name for name in __all__ if name != "KIND")
    return core if all(hasattr(core, name) for name in names) else None


_loops: Final = _compiled() or loops

#: Which ones are in use: "compiled" or "pure".
KIND: Final = "pure" if _loops is loops else "compiled"

if TYPE_CHECKING:
    from hermes.protocol.loops import (
        AsyncSupply,
        Rows,
        Supply,
        Term,
        check_records,
        collect_produces,
        count_plain,
        count_uncompressed,
        encode_plain,
        iterate,
        java_partitions,
        pack_plain,
        plain_fetch,
        plain_produce,
        single_fetch,
        single_fetched,
        tally,
        tally_records,
        whole_batches,
        whole_bytes,
        whole_message,
        whole_request,
    )
else:
    AsyncSupply = _loops.AsyncSupply
    Rows = _loops.Rows
    Supply = _loops.Supply
    Term = _loops.Term
    check_records = _loops.check_records
    collect_produces = _loops.collect_produces
    count_plain = _loops.count_plain
    count_uncompressed = _loops.count_uncompressed
    encode_plain = _loops.encode_plain
    iterate = _loops.iterate
    java_partitions = _loops.java_partitions
    pack_plain = _loops.pack_plain
    plain_fetch = _loops.plain_fetch
    plain_produce = _loops.plain_produce
    single_fetch = _loops.single_fetch
    single_fetched = _loops.single_fetched
    tally = _loops.tally
    tally_records = _loops.tally_records
    whole_batches = _loops.whole_batches
    whole_bytes = _loops.whole_bytes
    whole_message = _loops.whole_message
    whole_request = _loops.whole_request
