"""The column of append times: one time for each stretch of a log, null where it isn't known."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hermes.spark.reading import _Times

_KIND = pa.timestamp("us", tz="UTC")
_STRETCHES = st.lists(
    st.tuples(st.integers(1, 50), st.none() | st.integers(0, 2**41)), min_size=0, max_size=6
)


@given(_STRETCHES, st.lists(st.integers(0, 400), max_size=30).map(sorted))
def test_each_message_has_the_time_of_its_stretch(stretches, offsets) -> None:
    ends = np.cumsum([length for length, _ in stretches], dtype=np.int64)
    known = [time for _, time in stretches] or [None]  # as where no time is known at all
    times = _Times(
        int(ends[-1]) if stretches else 0,
        ends,
        np.array([time or 0 for time in known], np.int64),
        np.array([time is None for time in known]),
    )

    def expected(offset: int) -> int | None:
        for end, time in zip(ends, known, strict=False):
            if offset < end:
                return None if time is None else time * 1000
        last = known[-1]
        return None if last is None else last * 1000

    column = times.column(np.array(offsets, np.int64), _KIND)
    column.validate(full=True)
    assert column.cast(pa.int64()).to_pylist() == [expected(each) for each in offsets]


def test_a_column_without_unknown_times_says_of_no_row_that_it_may_be_null() -> None:
    times = _Times(10, np.array([10]), np.array([5]), np.array([False]))
    column = times.column(np.arange(3), _KIND)
    assert column.buffers()[0] is None
