"""The twins against brokers that answer wrongly: an error in time, then as if nothing had been."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_broker import MODES, HostileBroker

from hermes import FetchRequest, HermesError, SimpleConsumer, aio

REQUEST = [FetchRequest("clicks", 0, 0, 1000)]


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    started = HostileBroker()
    yield started
    started.stop()


async def _payloads(consumer: Any) -> list[bytes]:
    (result,) = await consumer.fetch_waiting(REQUEST, 0)
    return [message.payload for message, _ in result]


async def _meet_hostility(consumer: Any, broker: Any) -> None:
    """Fetch in every mode; after each an honest answer is that of its own request."""
    for mode in MODES:
        broker.mode = mode
        try:
            got = await _payloads(consumer)
        except HermesError:
            pass
        else:
            raise AssertionError(f"{mode}: {got}")
        broker.mode = "honest"
        assert await _payloads(consumer) == [b"%d" % broker.request_count], mode
    broker.mode = "extra"
    for _ in range(4):
        assert await _payloads(consumer) == [b"%d" % broker.request_count]


def options() -> dict[str, Any]:
    return {"supports_hermes_requests": True, "timeout_seconds": 1.0, "max_fetch_bytes": 1000}


def test_the_asyncio_client_never_takes_an_answer_for_anothers(broker: HostileBroker) -> None:
    async def main() -> None:
        async with aio.SimpleConsumer("127.0.0.1", broker.port, **options()) as consumer:
            await _meet_hostility(consumer, broker)

    asyncio.run(main())


def test_the_blocking_client_never_takes_an_answer_for_anothers(broker: HostileBroker) -> None:
    class Awaited:
        """The blocking client as a twin."""

        async def fetch_waiting(self, *arguments: Any) -> Any:
            return consumer.fetch_waiting(*arguments)

    with SimpleConsumer("127.0.0.1", broker.port, **options()) as consumer:
        asyncio.run(_meet_hostility(Awaited(), broker))


_TWISTED = """
import sys
sys.path[:0] = {paths!r}
from twisted.internet import task
from twisted.internet.defer import ensureDeferred
from twisted.logger import globalLogBeginner
from hostile_broker import HostileBroker
from test_hostile_brokers import _meet_hostility, options
from hermes.aio.twisted import SimpleConsumer

unhandled = []
globalLogBeginner.beginLoggingTo(
    [lambda event: unhandled.append(event) if "log_failure" in event else None],
    redirectStandardIO=False,
)
broker = HostileBroker()

async def main(reactor):
    async with SimpleConsumer(reactor, "127.0.0.1", broker.port, **options()) as consumer:
        await _meet_hostility(consumer, broker)

try:
    task.react(lambda reactor: ensureDeferred(main(reactor)))
finally:
    broker.stop()
    assert unhandled == [], unhandled
"""


def test_the_twisted_client_never_takes_an_answer_for_anothers(
    request: pytest.FixtureRequest,
) -> None:
    support = request.config.rootpath / "tests" / "support"
    program = _TWISTED.format(paths=[str(support), str(request.path.parent)])
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
