from collections.abc import Iterator

import pytest
from fake_registry import FakeRegistry, fake_registry

from hermes.schemas import RegistryClient


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as served:
        yield served


@pytest.fixture
def client(registry: FakeRegistry) -> Iterator[RegistryClient]:
    made = RegistryClient(registry.url, retry_seconds=30)
    yield made
    made.close()
