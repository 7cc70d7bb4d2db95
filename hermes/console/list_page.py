"""One page of a list that can be searched and sorted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

_T = TypeVar("_T")

_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class ListPage(Generic[_T]):
    """`found`: how many rows match, of `total`. `page`: from 1. `pages`: 1 or more."""

    rows: tuple[_T, ...]
    found: int
    total: int
    page: int
    pages: int
    search: str
    sort: str = "name"
    is_descending: bool = False

    @classmethod
    def cut(cls, found: Sequence[_T], total: int, page: int, search: str, **more: Any) -> Self:
        """Cut a page out of the rows that match; the last one if there are fewer."""
        pages = max(1, -(-len(found) // _ROWS))
        page = min(max(page, 1), pages)
        rows = tuple(found[(page - 1) * _ROWS : page * _ROWS])
        return cls(rows, len(found), total, page, pages, search, **more)


def list_order(sort: str, order: str, sorts: Sequence[str]) -> tuple[str, bool]:
    """The column to sort by, and whether descending: by default all but the names are."""
    sort = sort if sort in sorts else "name"
    return sort, order == "desc" or (order != "asc" and sort != "name")
