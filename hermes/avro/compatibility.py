"""Whether what one Avro schema wrote can be read with another; source: "Schema Resolution".

Of the packages: `fastavro` has no such check. `avro` has one, which these rules agree with
(tests/property/avro/test_compatibility.py) but for its faults: it names no path that people can
follow, recurses as deep as a hostile pair of schemas goes, and keeps what it assumed of a recursive
type while it tried one branch of a union when that branch has turned out not to fit.

Pairs of a reader's and a writer's type make a graph, since types contain themselves. It is built
without recursion; then what is incompatible by itself makes incompatible what depends on it, until
nothing changes. The rest is compatible: recursive types are, unless something says otherwise.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hermes.avro.graph import RECORDS, AvroField, AvroType, decimal_of
from hermes.avro.parsing import ParsedAvroSchema
from hermes.quoting import quoted

#: How many pairs of types the comparison of two schemas looks at.
MAX_PAIRS: Final = 200_000

#: How many reasons a refusal gives.
MAX_REASONS: Final = 10

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_MOST_SYMBOLS: Final = 5
_MOST_OF_A_PATH: Final = 500


def reasons_not_to_read(reader: ParsedAvroSchema, writer: ParsedAvroSchema) -> list[str]:
    """Why one schema can't read what another wrote, each reason with the field's path.

    Paths are in the reader's schema: `Order.lines[].price`. Empty if it can read everything.
    """
    if reader.text == writer.text and reader.root is writer.root:
        return []
    graph = _PairGraph()
    try:
        root = graph.build(reader.root, writer.root)
    except _TooLargeError:
        return [f"the schemas are too large to be compared: more than {MAX_PAIRS} pairs of types"]
    graph.spread()
    return list(graph.reasons(root)) if root.is_bad else []


class _TooLargeError(Exception):
    pass


@dataclass(eq=False, slots=True)
class _SchemaPair:
    """A reader's and a writer's type.

    Attributes:
        faults: reasons why they are incompatible whatever their parts are: (path, reason).
        parts: pairs that must be compatible, with their paths in this one.
        is_choice: whether one compatible part is enough: a reader's union.
        users: pairs that this is a part of.
        good_parts: how many parts may still be compatible.
    """

    reader: AvroType
    writer: AvroType
    faults: list[tuple[str, str]] = field(default_factory=list)
    parts: "list[tuple[str, _SchemaPair]]" = field(default_factory=list)
    is_choice: bool = False
    users: "list[_SchemaPair]" = field(default_factory=list)
    good_parts: int = 0
    is_bad: bool = False


class _PairGraph:
    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _SchemaPair] = {}
        self._to_do: deque[_SchemaPair] = deque()
        self._named_branches: dict[int, dict[str, list[AvroType]]] = {}
        self._counted = 0

    def build(self, reader: AvroType, writer: AvroType) -> _SchemaPair:
        root = self._pair(reader, writer)
        while self._to_do:
            pair = self._to_do.popleft()
            self._compare(pair)
            pair.good_parts = len(pair.parts)
            for _, part in pair.parts:
                part.users.append(pair)
        return root

    def spread(self) -> None:
        bad = [each for each in self._pairs.values() if _is_bad(each)]
        for each in bad:
            each.is_bad = True
        while bad:
            for user in bad.pop().users:
                user.good_parts -= 1
                if not user.is_bad and (not user.is_choice or user.good_parts == 0):
                    user.is_bad = True
                    bad.append(user)

    def reasons(self, root: _SchemaPair) -> Iterator[str]:
        """Why a pair is incompatible: the first reasons on the way from it, each type once."""
        to_do = deque([(root.reader.simple_name or root.reader.kind, root)])
        seen, count = {id(root)}, 0
        while to_do:
            path, pair = to_do.popleft()
            faults = list(pair.faults)
            if pair.is_choice:
                faults.append(("", _no_branch(pair)))
            for end, fault in faults:
                count += 1
                if count > MAX_REASONS:
                    yield "and more"
                    return
                yield f"{path}{end}: {fault}"
            if pair.is_choice and not _same_shape(pair):
                continue  # the faults of each branch say nothing
            for end, part in pair.parts:
                if not part.is_bad or id(part) in seen:
                    continue
                if part.reader.name:  # only named types contain themselves
                    seen.add(id(part))
                to_do.append((_shortened(path + end), part))

    def _pair(self, reader: AvroType, writer: AvroType) -> _SchemaPair:
        self._count()
        key = id(reader), id(writer)
        if key not in self._pairs:
            self._pairs[key] = _SchemaPair(reader, writer)
            self._to_do.append(self._pairs[key])
        return self._pairs[key]

    def _branches_for(self, union: AvroType, writer: AvroType) -> list[AvroType]:
        """The branches that may fit, without a look at each: unions can be large."""
        by_name = self._named_branches.get(id(union))
        if by_name is None:
            by_name = self._named_branches[id(union)] = defaultdict(list)
            for each in union.branches:
                # Unnamed ones are few: a union has each kind once.
                for name in {each.simple_name, *each.aliases} if each.name else {""}:
                    by_name[name].append(each)
        names = {writer.simple_name, writer.name} if writer.name else {""}
        candidates = {id(each): each for name in names for each in by_name.get(name, ())}
        self._count(sum(1 + len(each.aliases) for each in candidates.values()))
        return [each for each in candidates.values() if _may_fit(each, writer)]

    def _count(self, count: int = 1) -> None:
        self._counted += count
        if self._counted > MAX_PAIRS:
            raise _TooLargeError

    def _compare(self, pair: _SchemaPair) -> None:
        reader, writer = pair.reader, pair.writer
        self._count(len(reader.aliases))
        if writer.kind == "union":
            pair.parts = [("", self._pair(reader, each)) for each in writer.branches]
        elif reader.kind == "union":
            pair.is_choice = True
            fitting = self._branches_for(reader, writer)
            pair.parts = [("", self._pair(each, writer)) for each in fitting]
        elif not _may_fit(reader, writer):
            pair.faults.append(("", _mismatch(reader, writer)))
        elif reader.items is not None and writer.items is not None:
            end = "[]" if reader.kind == "array" else "{}"
            pair.parts.append((end, self._pair(reader.items, writer.items)))
        elif reader.kind == "fixed":
            if reader.size != writer.size:
                pair.faults.append(("", f"{reader.size} bytes can't be read from {writer.size}"))
        elif reader.kind == "enum":
            self._compare_symbols(pair)
        elif reader.kind in RECORDS:
            self._compare_fields(pair)
        if not pair.faults and writer.kind != "union" and reader.kind != "union":
            self._compare_decimals(pair)

    def _compare_symbols(self, pair: _SchemaPair) -> None:
        self._count(len(pair.reader.symbols) + len(pair.writer.symbols))
        missing = [each for each in pair.writer.symbols if each not in pair.reader.symbols]
        if missing and pair.reader.default is None:
            shown = ", ".join(quoted(each, 40) for each in missing[:_MOST_SYMBOLS])
            more = "" if len(missing) <= _MOST_SYMBOLS else f" and {len(missing) - _MOST_SYMBOLS}"
            pair.faults.append(
                ("", f"the symbols {shown}{more} are not known, and there is no default")
            )

    def _compare_fields(self, pair: _SchemaPair) -> None:
        self._count(len(pair.writer.fields))
        written = {each.name: each for each in pair.writer.fields}
        for each in pair.reader.fields:
            self._count(1 + len(each.aliases))
            source = _source(each, written)
            if source is not None:
                pair.parts.append((f".{each.name}", self._pair(each.type, source.type)))
            elif not each.has_default:
                pair.faults.append(
                    (f".{each.name}", "the field is not in what was written, and has no default")
                )

    def _compare_decimals(self, pair: _SchemaPair) -> None:
        ours, theirs = decimal_of(pair.reader), decimal_of(pair.writer)
        if ours and theirs and ours != theirs:
            pair.faults.append(
                (
                    "",
                    f"decimal{ours} can't be read from decimal{theirs}: precision and scale must "
                    "be the same",
                )
            )


def _shortened(path: str) -> str:
    """A path that doesn't grow with each step: its begin and its end."""
    if len(path) <= _MOST_OF_A_PATH:
        return path
    half = _MOST_OF_A_PATH // 2
    return f"{path[:half]}...{path[-half:]}"


def _is_bad(pair: _SchemaPair) -> bool:
    return bool(pair.faults) or (pair.is_choice and not pair.parts)


def _may_fit(reader: AvroType, writer: AvroType) -> bool:
    if reader.kind == writer.kind or (reader.kind in RECORDS and writer.kind in RECORDS):
        if not reader.name:
            return True
        return reader.simple_name == writer.simple_name or writer.name in reader.aliases
    return writer.kind in _PROMOTIONS.get(reader.kind, ())


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _mismatch(reader: AvroType, writer: AvroType) -> str:
    if reader.kind == writer.kind:
        return (
            f"{reader.kind} {quoted(reader.name)} can't be read from {quoted(writer.name)}: the "
            "names differ, and no alias says that they are the same"
        )
    return f"{_described(reader)} can't be read from {_described(writer)}"


def _no_branch(pair: _SchemaPair) -> str:
    return f"no branch of the union can be read from {_described(pair.writer)}"


def _described(kind: AvroType) -> str:
    return f"{kind.kind} {quoted(kind.name)}" if kind.name else kind.kind


def _same_shape(pair: _SchemaPair) -> bool:
    """Whether a union has one branch that was surely meant: of the same kind and name."""
    return len(pair.parts) == 1 and pair.parts[0][1].reader.kind == pair.writer.kind
