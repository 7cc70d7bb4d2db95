"""The cases of the Avro specification, "Schema Resolution", and of Apache's own tests of it."""

import json

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from hermes.avro.compatibility import MAX_REASONS, reasons_not_to_read
from hermes.avro.parsing import parse_schema


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name, type_, **more):
    return {"name": name, "type": type_, **more}


def enum(*symbols, name="E", **more):
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size, name="F", **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items):
    return {"type": "array", "items": items}


def map_of(values):
    return {"type": "map", "values": values}


def decimal(precision, scale, type_="bytes"):
    made = {"type": type_} if isinstance(type_, str) else type_
    return {**made, "logicalType": "decimal", "precision": precision, "scale": scale}


def reasons(reader, writer):
    return reasons_not_to_read(parse_schema(reader), parse_schema(writer))


LIST = record(field("head", "int"), field("tail", ["null", "R"]))
LONG_LIST = record(field("head", "long"), field("tail", ["null", "R"]))
BRANCHES = [enum("x", name="En"), fixed(2, name="Fi"), record(field("a", "int"), name="Re")]

READABLE = {
    # "if both are arrays whose item types match", and so on
    **{f"{each} by itself": (each, each) for each in (["null", "boolean", "int", "long"])},
    **{f"{each} by itself": (each, each) for each in (["float", "double", "bytes", "string"])},
    "arrays": (array("long"), array("int")),
    "maps": (map_of("double"), map_of("float")),
    "enums of one name": (enum("a", "b"), enum("a")),
    "enums whose simple names agree": (enum("a", namespace="x"), enum("a", namespace="y")),
    "fixed": (fixed(4), fixed(4)),
    "records": (record(field("a", "int")), record(field("a", "int"))),
    "records whose simple names agree": (record(namespace="x"), record(namespace="y")),
    "record and error": (record(), {**record(), "type": "error"}),
    # "the writer's schema may be promoted to the reader's"
    "int as long": ("long", "int"),
    "int as float": ("float", "int"),
    "int as double": ("double", "int"),
    "long as float": ("float", "long"),
    "long as double": ("double", "long"),
    "float as double": ("double", "float"),
    "string as bytes": ("bytes", "string"),
    "bytes as string": ("string", "bytes"),
    # "the ordering of fields may be different"
    "fields in another order": (
        record(field("b", "int"), field("a", "int")),
        record(field("a", "int"), field("b", "int")),
    ),
    "a field that is not wanted": (record(), record(field("a", "int"))),
    "a field with a default": (record(field("a", "int", default=0)), record()),
    "a default of null": (record(field("a", ["null", "int"], default=None)), record()),
    "a promoted field": (record(field("a", "double")), record(field("a", "int"))),
    # "if the writer's symbol is not present in the reader's enum and the reader has a default"
    "an enum's default": (enum("a", "other", default="other"), enum("a", "b")),
    # unions
    "a union as the same": (["int", "string"], ["int", "string"]),
    "a union as a larger one": (["null", "int", "string"], ["string", "int"]),
    "a union as a type that reads all": ("double", ["int", "long", "float"]),
    "a type as a union": (["null", "int"], "int"),
    "a type promoted in a union": (["null", "double"], "int"),
    "an empty union as anything": ("int", []),
    "named types in a union": (BRANCHES, record(field("a", "int"), name="Re")),
    "a union in a field": (record(field("a", ["null", "long"])), record(field("a", "int"))),
    # aliases of the reader's
    "a record's alias": (record(name="New", aliases=["R"]), record()),
    "a record's alias in its namespace": (
        record(name="New", namespace="x", aliases=["R"]),
        record(namespace="x"),
    ),
    "a record's full alias": (record(name="New", aliases=["x.R"]), record(namespace="x")),
    "an enum's alias": (enum("a", name="New", aliases=["E"]), enum("a")),
    "a fixed's alias": (fixed(1, name="New", aliases=["F"]), fixed(1)),
    "a field's alias": (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    # types that contain themselves
    "a list": (LIST, LIST),
    "a list, promoted": (LONG_LIST, LIST),
    # logical types
    "the same decimal": (decimal(4, 2), decimal(4, 2)),
    "a decimal as bytes": ("bytes", decimal(4, 2)),
    "bytes as a decimal": (decimal(4, 2), "bytes"),
    "an invalid decimal, which is ignored": (decimal(2, 4), decimal(4, 2)),
    "a logical type that nobody knows": ({"type": "int", "logicalType": "mood"}, "int"),
    "dates as numbers": ("int", {"type": "int", "logicalType": "date"}),
}

UNREADABLE = {
    **{
        f"{writer} as {reader}": (reader, writer, f"{reader}: {reader} can't be read from {writer}")
        for reader, writer in (
            ("null", "int"),
            ("boolean", "int"),
            ("int", "null"),
            ("int", "boolean"),
            ("int", "long"),
            ("int", "float"),
            ("int", "double"),
            ("long", "float"),
            ("long", "double"),
            ("float", "double"),
            ("string", "int"),
            ("bytes", "int"),
            ("double", "string"),
        )
    },
    "an array as a map": (map_of("int"), array("int"), "map: map can't be read from array"),
    "items": (array("int"), array("string"), "array[]: int can't be read from string"),
    "values": (map_of("int"), map_of("string"), "map{}: int can't be read from string"),
    "sizes": (fixed(4), fixed(8), "F: 4 bytes can't be read from 8"),
    "names of fixed": (fixed(4), fixed(4, name="G"), "F: fixed 'F' can't be read from 'G'"),
    "names of enums": (enum("a"), enum("a", name="G"), "E: enum 'E' can't be read from 'G'"),
    "names of records": (record(), record(name="S"), "R: record 'R' can't be read from 'S'"),
    "an alias in another namespace": (
        record(name="New", namespace="x", aliases=["R"]),
        record(namespace="y"),
        "New: record 'x.New' can't be read from 'y.R'",
    ),
    "an alias of the writer's": (
        record(),
        record(name="S", aliases=["R"]),
        "R: record 'R' can't be read from 'S'",
    ),
    "symbols": (enum("a"), enum("a", "b", "c"), "E: the symbols 'b', 'c' are not known"),
    "an enum as text": ("string", enum("a"), "string: string can't be read from enum 'E'"),
    "a field without a default": (
        record(field("a", "int")),
        record(),
        "R.a: the field is not in what was written, and has no default",
    ),
    "a field of another type": (
        record(field("a", "int")),
        record(field("a", "string")),
        "R.a: int can't be read from string",
    ),
    "a branch that is missing": (
        ["int", "null"],
        ["int", "string"],
        "union: no branch of the union can be read from string",
    ),
    "a branch that the type can't read": (
        "int",
        ["int", "string"],
        "int: int can't be read from string",
    ),
    "an empty union": ([], "int", "union: no branch of the union can be read from int"),
    "a record's branch": (
        ["null", record(field("a", "int"))],
        record(field("a", "string")),
        ".a: int can't be read from string",
    ),
    "deep inside": (
        record(field("lines", array(record(field("price", "int"), name="Line"))), name="Order"),
        record(field("lines", array(record(field("price", "string"), name="Line"))), name="Order"),
        "Order.lines[].price: int can't be read from string",
    ),
    "in a list": (LIST, LONG_LIST, "R.head: int can't be read from long"),
    "decimals": (decimal(4, 2), decimal(4, 3), "bytes: decimal(4, 2) can't be read from"),
    "decimals of fixed": (
        decimal(4, 2, fixed(4)),
        decimal(5, 2, fixed(4)),
        "F: decimal(4, 2) can't be read from decimal(5, 2)",
    ),
}


@pytest.mark.parametrize("case", READABLE)
def test_what_can_be_read(case):
    reader, writer = READABLE[case]
    assert reasons(reader, writer) == []


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_can_not_be_read_and_where(case):
    reader, writer, reason = UNREADABLE[case]
    assert reason in "\n".join(reasons(reader, writer))


def test_what_one_branch_assumed_is_not_believed_in_another():
    """Apache's check says yes: it remembers what it assumed of `a.N` after that has failed."""
    child = record(field("parent", ["null", "N"]), name="C")
    writer = record(field("child", child), field("z", "int"), name="N")
    first_child = record(field("parent", ["null", "a.N"]), name="C", namespace="a")
    first = record(field("child", first_child), field("z", "string"), name="N", namespace="a")
    second = record(field("child", "a.C"), field("z", "int"), name="N", namespace="b")
    assert reasons([first, second], writer) != []
    schemas = (avro.schema.parse(json.dumps(each)) for each in ([first, second], writer))
    found = ReaderWriterCompatibilityChecker().get_compatibility(*schemas)
    assert found.compatibility is SchemaCompatibilityType.compatible  # if not: use it


def test_each_reason_is_given_and_not_too_many():
    many = [field(f"f{number}", "int") for number in range(MAX_REASONS + 5)]
    found = reasons(record(*many), record())
    assert len(found) == MAX_REASONS + 1
    assert found[-1] == "and more"
    assert found[0].startswith("R.f0: ")
    assert len(reasons(record(*many[:3]), record())) == 3
    texts = [field(each["name"], "string") for each in many[:3]]
    found = reasons(record(*many[:3]), record(*texts))
    assert [each.partition(":")[0] for each in found] == ["R.f0", "R.f1", "R.f2"]


def chain(count, last_type, name_of_definitions):
    """Records of which each contains the one before, reached from the last one."""
    links = [record(field("value", last_type), name="R0")]
    links += [record(field("next", f"R{each - 1}"), name=f"R{each}") for each in range(1, count)]
    definitions = field(name_of_definitions, ["null", *links], default=None)
    return record(definitions, field("top", f"R{count - 1}"), name="Chain")


def test_a_chain_of_types_longer_than_recursion_could_follow():
    assert reasons(chain(3000, "long", "ours"), chain(3000, "int", "theirs")) == []
    (reason,) = reasons(chain(3000, "int", "ours"), chain(3000, "long", "theirs"))
    assert reason.startswith("Chain.top.next.next.")
    assert reason.endswith(".next.value: int can't be read from long")
    assert len(reason) < 1000


def test_large_unions_are_compared():
    branches = [record(field("a", "int"), name=f"R{each}") for each in range(2000)]
    assert reasons(branches, list(reversed(branches))) == []
    assert len(reasons(branches[1:], branches)) == 1


def test_schemas_that_are_too_large_to_compare_are_refused():
    branches = [
        record(
            *[field(f"f{number}", "int") for number in range(30)],
            name=f"R{each}",
            aliases=[f"R{other}" for other in range(110) if other != each],
        )
        for each in range(110)
    ]
    (reason,) = reasons(branches, branches)
    assert "too large to be compared" in reason


def test_what_is_long_counts_as_much_as_what_is_many():
    """Aliases, symbols and fields that each pair would look through."""
    aliases = [f"A{number}" for number in range(2000)]
    reader = [record(name=f"R{number}", aliases=[*aliases, "W"]) for number in range(90)]
    (reason,) = reasons(reader, record(name="W"))
    assert "too large to be compared" in reason
