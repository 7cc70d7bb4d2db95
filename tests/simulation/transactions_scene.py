"""The scene of a cluster with transactions: producers of both versions, and readers of the outcome.

All of `copies` goes on beside it. A transactional id may have two producers, of which each fences
the other; any of them may stand still, or be killed, in the middle of a transaction.
"""

from clients import run
from committed_readers import CommittedReader
from copies_scene import Copies
from invariants_transactions import TransactionBooks
from schedule import SCENES
from transactional_producers import TransactionalProducer
from world import World

#: When all is read once more, after troubles: what was left open has timed out by then.
_READ_US = 20_000_000


class Transactions(Copies):
    # A clock that jumps lets a transaction be open for as long as it has jumped.
    kinds = tuple(each for each in Copies.kinds if each != "clock")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.transactions = TransactionBooks(self.books)
        self._ids = [f"t{number}" for number in range(self._chance.choice((1, 2, 3)))]
        self._reader = self._committed_reader("committed")

    def _committed_reader(self, name: str) -> CommittedReader:
        chance = self.world.child(name)
        return CommittedReader(self._client(name), self.transactions, self.names, self._ids, chance)

    def begin(self) -> None:
        super().begin()
        self.world.at(1_500_000, run, self._reader.client, self._reader.work)
        for transactional_id in self._ids:
            for number in range(self._chance.choice((1, 2, 2))):
                self._begin_producer(transactional_id, f"{transactional_id}-{number}")

    def _begin_producer(self, transactional_id: str, name: str) -> None:
        producer = TransactionalProducer(
            self._client(name),
            self.transactions,
            self.names,
            transactional_id,
            self.world.child(name),
        )
        begins_us = self._chance.choice((1_500_000, 1_500_000, 5_000_000))
        self.world.at(begins_us, run, producer.client, producer.work)
        if self._chance.random() < 0.3:
            self._end(producer.client, begins_us)
        if self._chance.random() < 0.3:
            self._pause(producer.client, begins_us)

    def calm(self) -> None:
        super().calm()
        self.world.at(_READ_US, run, self._reader.client, self._reader.read_all)

    def check_end(self) -> None:
        if len(self._reader.last) < len(self._ids):
            self.world.fail("not all could be read in the end")
        self.transactions.check_end(self._reader.last)
        super().check_end()


SCENES["transactions"] = Transactions
