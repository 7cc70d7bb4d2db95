import os

import pytest

from hermes.cli.line_batches import DescriptorSource, LineTooLongError, read_batches


class ScriptedSource:
    """Gives the chunks one by one; None stands for a silence longer than the linger."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)
        self.lingers = []

    def read(self):
        while self._chunks and self._chunks[0] is None:
            self._chunks.pop(0)
        return self._chunks.pop(0) if self._chunks else b""

    def wait(self, seconds):
        self.lingers.append(seconds)
        return not (self._chunks and self._chunks[0] is None)


def batches(source, *, max_lines=1000, max_batch_bytes=1 << 20, max_line_bytes=1 << 20):
    found = read_batches(
        source,
        max_lines=max_lines,
        max_batch_bytes=max_batch_bytes,
        max_line_bytes=max_line_bytes,
        linger_seconds=0.25,
    )
    return [(batch.lines, batch.byte_count) for batch in found]


def lines_of(data):
    return [line for lines, _ in batches(ScriptedSource(*data)) for line in lines]


def test_a_line_ends_at_its_newline_and_the_last_one_may_lack_it():
    assert lines_of([b"a\nb"]) == [b"a", b"b"]


def test_an_empty_line_is_a_message():
    assert lines_of([b"\n\na\n\n"]) == [b"", b"", b"a", b""]


def test_no_bytes_are_no_lines():
    assert lines_of([]) == []


def test_everything_but_the_newline_survives():
    data = bytes(b for b in range(256) if b != 10)
    assert lines_of([data + b"\n" + data + b"\r\n"]) == [data, data + b"\r"]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_chunks_may_end_anywhere(size):
    data = b"one\n\nthree\nfour"
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert lines_of(chunks) == [b"one", b"", b"three", b"four"]


def test_a_batch_is_full_by_lines_or_by_bytes():
    assert batches(ScriptedSource(b"a\nb\nc\n"), max_lines=2) == [
        ([b"a", b"b"], 2),
        ([b"c"], 1),
    ]
    assert batches(ScriptedSource(b"aa\nbb\ncccccccc\nd\n"), max_batch_bytes=4) == [
        ([b"aa", b"bb"], 4),
        ([b"cccccccc"], 8),
        ([b"d"], 1),
    ]


def test_what_is_there_is_handed_out_when_the_source_falls_silent():
    source = ScriptedSource(b"a\nb\nc", None, b"c\nd\n", b"e\n")
    assert batches(source) == [([b"a", b"b"], 2), ([b"cc", b"d", b"e"], 4)]
    assert set(source.lingers) == {0.25}


def test_silence_without_a_whole_line_yields_nothing():
    assert batches(ScriptedSource(b"a", None, b"b\n")) == [([b"ab"], 2)]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"ok\nfine\n12345\nnever\n"],
        [b"ok\nfine\n12345"],  # found at the end of the source
        [b"ok\nfine\n12", b"34", b"56", AssertionError("a line without end must not be read on")],
    ],
)
def test_a_line_above_the_limit_is_named_after_the_lines_before_it(chunks):
    found = read_batches(
        ScriptedSource(*chunks),
        max_lines=10,
        max_batch_bytes=100,
        max_line_bytes=4,
        linger_seconds=0,
    )
    assert next(found).lines == [b"ok", b"fine"]
    with pytest.raises(LineTooLongError, match="line 3 is longer than 4 bytes"):
        next(found)


def test_a_descriptor_is_read_as_bytes_come():
    reading, writing = os.pipe()
    try:
        source = DescriptorSource(reading)
        assert not source.wait(0)
        os.write(writing, b"now")
        assert source.wait(0)
        assert source.read() == b"now"
        os.close(writing)
        writing = None
        assert source.wait(0)
        assert source.read() == b""
    finally:
        os.close(reading)
        if writing is not None:
            os.close(writing)


@pytest.mark.parametrize("delimiter", [b";", b"\0", b"--", b"abab"])
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_any_delimiter_however_it_is_cut(delimiter, step):
    lines = [b"first", b"", b"a-b", b"ab", b"\n", b"last"]
    data = delimiter.join(lines)
    pieces = [data[start : start + step] for start in range(0, len(data), step)] + [b""]

    class Source:
        def read(self):
            return pieces.pop(0)

        def wait(self, seconds):
            return True

    found = read_batches(
        Source(),
        max_lines=100,
        max_batch_bytes=1000,
        max_line_bytes=1000,
        linger_seconds=0,
        delimiter=delimiter,
    )
    assert [line for batch in found for line in batch.lines] == data.split(delimiter)
