"""Avro schemas: what is read, what is refused and where, and the normal form."""

import json

import avro.schema
import fastavro
import pytest

from hermes.registry.drafts import read_avro
from hermes.registry.errors import RegistryError
from hermes.registry.limits import MAX_DEPTH, MAX_VALUES


def field(type_, name="x", **more):
    return {"name": name, "type": type_, **more}


def record(*fields, name="A", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def refusal(text):
    text = text if isinstance(text, str | bytes) else json.dumps(text)
    with pytest.raises(RegistryError) as caught:
        read_avro(text)
    assert caught.value.code == 42201
    return caught.value.message


E = {"type": "enum", "name": "E", "symbols": ["a"]}
F = {"type": "fixed", "name": "F", "size": 2}
INNER = record(field("int", "y"), name="B")

REFUSED = {
    "no JSON": ("{", "it is not JSON: Expecting property name"),
    "a number": ("7", "a type must be a name, a list or an object, not 7"),
    "null": ("null", "a type must be a name, a list or an object, not None"),
    "no type": ({"name": "A"}, 'an object needs a "type"'),
    "an unknown type": (record(field("Foo")), "at A.x: the type 'Foo' is not known"),
    "an unknown type in a namespace": (record(field("Foo"), namespace="n"), "'n.Foo' is not known"),
    "no type's name": (record(field("a-b")), "at A.x: 'a-b' is not a name of a type"),
    "a record's name": (record(name="1A"), "record needs a name by Avro's rules, not '1A'"),
    "no name": ({"type": "record", "fields": []}, "record needs a name by Avro's rules, not None"),
    "a namespace": (record(namespace="a..b"), "'a..b' is not a namespace by Avro's rules"),
    "an alias": (record(aliases=["1"]), "at A: \"aliases\" has '1'"),
    "aliases": (record(aliases="B"), 'at A: "aliases" must be a list of names'),
    "a primitive's name": (record(name="string"), "'string' is a primitive type's name"),
    "documentation": (record(doc=["x"]), 'at A: "doc" must be text'),
    "two types of one name": ([F, F], "'F' is defined twice"),
    "no fields": ({"type": "record", "name": "A"}, 'at A: record needs "fields": a list'),
    "a field": (record("x"), "at A: a field must be an object, not 'x'"),
    "a field's name": (record(field("int", "a.b")), "at A: a field needs a name"),
    "a field without a type": (record({"name": "x"}), 'at A.x: a field needs a "type"'),
    "two fields of one name": (record(field("int"), field("int")), "at A: the field 'x' is given"),
    "an order": (record(field("int", order="up")), "at A.x: the order must be one of"),
    "an alias of a field": (record(field("int", aliases=["b.c"])), "at A.x: \"aliases\" has 'b.c'"),
    "no symbols": ({"type": "enum", "name": "E"}, 'at E: enum needs "symbols"'),
    "a symbol": ({**E, "symbols": ["a-b"]}, "at E: \"symbols\" has 'a-b'"),
    "two symbols": ({**E, "symbols": ["a", "a"]}, "at E: a symbol is given twice"),
    "an enum's default": ({**E, "default": "b"}, "at E: the default 'b' is none of the symbols"),
    "a size": ({**F, "size": -1}, 'at F: fixed needs a "size"'),
    "a size as text": ({**F, "size": "1"}, 'at F: fixed needs a "size"'),
    "no items": ({"type": "array"}, 'array needs "items"'),
    "no values": ({"type": "map"}, 'map needs "values"'),
    "items": ({"type": "array", "items": 1}, "at []: a type must be a name"),
    "a union in a union": (["int", ["string"]], "a union can't contain a union"),
    "a union with a type twice": (["int", "int"], "the union has 'int' twice"),
    "a key twice": ('{"type": "int", "type": "string"}', "the key 'type' is given twice"),
    "a default": (record(field("int", default="a")), 'at A.x: the default "a" is not a value'),
    "a default out of range": (record(field("int", default=2**31)), "not a value of the type int"),
    "true as a number": (record(field("int", default=True)), "not a value of the type int"),
    "a default of a record": (record(field(INNER, default={})), "not a value of the type B"),
    "a default of an array": (
        record(field({"type": "array", "items": "int"}, default=["a"])),
        "not a value of the type array",
    ),
    "a default of a fixed": (record(field(F, default="abc")), "not a value of the type F"),
    "a default of a union": (
        record(field(["null", "int"], default="a")),
        "not a value of the type union",
    ),
    "what fastavro would believe": (
        {"type": "rubbish", "__fastavro_parsed": True, "__named_schemas": {}},
        "the type 'rubbish' is not known",
    ),
    "not UTF-8": (b'"\xff"', "it is not UTF-8, from byte 1 on"),
    "half a surrogate pair": ('{"type": "int", "doc": "\\ud800"}', "half of a surrogate pair"),
    "a number that is no number": ('{"type": "int", "x": NaN}', "NaN is not JSON"),
    "a number that is too large": ('{"type": "int", "x": 1e999}', "'1e999' is too large"),
    "a long number": ('{"type": "int", "x": ' + "1" * 2000 + "}", "more than 1000 digits"),
    "nesting": ('{"type":"array","items":' * 100_000, "it is not JSON|nested deeper"),
    "valid nesting": (
        '{"type":"array","items":' * 400 + '"int"' + "}" * 400,
        f"nested deeper than {MAX_DEPTH} levels",
    ),
    "a key twice among many": (
        "{" + ",".join(f'"k{number}":0' for number in range(50_000)) + ',"k49999":1}',
        "the key 'k49999' is given twice",
    ),
    "too many values": (
        '{"type":"int","x":[' + "0," * MAX_VALUES + "0]}",
        f"more than {MAX_VALUES} values",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_where(case):
    text, reason = REFUSED[case]
    message = refusal(text)
    assert any(each in message for each in reason.split("|")), message
    assert len(message) < 400
    assert message.isprintable()


def test_the_packages_accept_what_the_specification_forbids():
    """If they refuse these: read schemas with them."""
    lenient = [
        record(field("int"), field("int")),
        ["int", ["string"]],
        record(name="string"),
        {**F, "size": -1},
        {"type": "rubbish", "__fastavro_parsed": True, "__named_schemas": {}},
    ]
    for each in lenient:
        fastavro.parse_schema(each)
    for each in (record(field("int", default="a")), record(aliases=["1"])):
        avro.schema.parse(json.dumps(each))


def test_nested_choices_of_a_default_take_no_time():
    """Tried branch by branch, these would be 2^60 ways."""
    other = record(field(["null", "A", "B"], "next", default=None), name="B")
    default = {"next": {"next": {}}}
    for _ in range(60):
        default = {"next": default}
    default["next"]["bad"] = 1
    schema = record(field(["null", "A", other], "next", default=default))
    assert read_avro(json.dumps(schema)).root.name == "A"


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ({"type": "string"}, '"string"'),
        ({"type": {"type": "string"}}, '"string"'),
        ({"logicalType": "date", "type": "int"}, '{"type":"int","logicalType":"date"}'),
        ({"items": "int", "type": "array"}, '{"type":"array","items":"int"}'),
        (
            {"name": "a.b.C", "type": "fixed", "size": 1},
            '{"type":"fixed","name":"C","namespace":"a.b","size":1}',
        ),
        (
            {"name": "C", "namespace": "a.b", "type": "fixed", "size": 1},
            '{"type":"fixed","name":"C","namespace":"a.b","size":1}',
        ),
        (
            record(
                field("int", order="ascending", doc="d", z=1, y=2),
                doc="e",
                aliases=["n.Old"],
                namespace="n",
            ),
            '{"type":"record","name":"A","namespace":"n","doc":"e","fields":[{"name":"x","type":"int",'
            '"doc":"d","y":2,"z":1}],"aliases":["Old"]}',
        ),
        (
            record(field({**F, "namespace": "n"}), field("n.F", "y"), namespace="n"),
            '{"type":"record","name":"A","namespace":"n","fields":[{"name":"x","type":{"type":"fixed",'
            '"name":"F","size":2}},{"name":"y","type":"F"}]}',
        ),
        (
            record(field({**F, "namespace": ""}), field("F", "y"), namespace="n"),
            '{"type":"record","name":"A","namespace":"n","fields":[{"name":"x","type":{"type":"fixed",'
            '"name":"F","namespace":"","size":2}},{"name":"y","type":"F"}]}',
        ),
        (
            ["null", {"type": "error", "name": "A", "fields": []}],
            '["null",{"type":"error","name":"A","fields":[]}]',
        ),
        (
            record(field(["null", "string"], default=None)),
            '{"type":"record","name":"A","fields":[{"name":"x","type":["null","string"],'
            '"default":null}]}',
        ),
        ({**E, "default": "a"}, '{"type":"enum","name":"E","symbols":["a"],"default":"a"}'),
    ],
)
def test_the_normal_form(given, normal):
    read = read_avro(json.dumps(given, indent=2))
    assert read.text == normal
    assert read_avro(normal).text == normal


def test_a_type_of_a_reference_is_known_and_only_named():
    known = read_avro(json.dumps({**F, "namespace": "n"})).names
    read = read_avro(json.dumps(record(field("n.F"))), known)
    assert read.root.fields[0].type is known["n.F"]
    assert read.text == '{"type":"record","name":"A","fields":[{"name":"x","type":"n.F"}]}'


def test_defaults_that_are_values():
    good = [
        ("null", None),
        ("boolean", False),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1),
        ("double", 1.5),
        ("double", "NaN"),
        ("bytes", "\u00ff"),
        ("string", "\u1234"),
        (["int", "string"], "x"),
        ({"type": "map", "values": "int"}, {"a": 1}),
        (F, "ab"),
        (record(field("int", "y", default=0), name="B"), {}),
        (E, "a"),
    ]
    for type_, default in good:
        read_avro(json.dumps(record(field(type_, default=default))))
