"""Avro's rules against Apache's own check, and against data that is really written and read."""

import io
import json
import warnings

import fastavro
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as parse_with_avro
from hypothesis import given
from hypothesis import strategies as st

from hermes.avro.compatibility import reasons_not_to_read
from hermes.avro.parsing import parse_schema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "\u00ff",
    "string": "x",
}
SYMBOLS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)


@st.composite
def types(draw, depth=3, taken=None):
    """A type; named types are numbered, so that those of two schemas often have one name."""
    taken = [0] if taken is None else taken
    kinds = ["primitive", "primitive", "enum", "fixed"]
    kinds += ["array", "map", "union", "record"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        case "array":
            return {"type": "array", "items": draw(types(depth - 1, taken))}
        case "map":
            return {"type": "map", "values": draw(types(depth - 1, taken))}
        case "enum":
            made = {"type": "enum", **named(taken), "symbols": draw(SYMBOLS)}
            if draw(st.booleans()):
                made["default"] = draw(st.sampled_from(made["symbols"]))
            return made
        case "fixed":
            return {"type": "fixed", **named(taken), "size": draw(st.integers(1, 2))}
        case "union":
            return draw(unions(depth, taken))
    return draw(records(depth, taken))


def named(taken):
    taken[0] += 1
    return {"name": f"T{taken[0]}"}


@st.composite
def unions(draw, depth, taken):
    branches = draw(st.lists(st.sampled_from(PRIMITIVES), max_size=3, unique=True))
    return [*branches, draw(records(depth - 1, taken))] if draw(st.booleans()) else branches


@st.composite
def records(draw, depth, taken):
    made = {"type": "record", **named(taken), "fields": []}
    for name in draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True)):
        field = {"name": name}
        if draw(st.integers(0, 5)) == 0:
            field |= {"type": ["null", made["name"]], "default": None}  # contains itself
        else:
            field["type"] = draw(types(max(depth - 1, 0), taken))
            if isinstance(field["type"], str) and draw(st.booleans()):
                field["default"] = DEFAULTS[field["type"]]
        if draw(st.integers(0, 9)) == 0:
            field["aliases"] = [draw(st.sampled_from("abcd"))]
        made["fields"].append(field)
    return made


@st.composite
def pairs(draw):
    """Two schemas: the second is often the first, changed a little."""
    first = draw(types())
    if draw(st.booleans()):
        return first, draw(types())
    return first, changed(draw, first)


def changed(draw, type_):
    change = draw(st.integers(0, 9)) == 0
    match type_:
        case "int" | "long" | "float" | "string" | "bytes" if change or draw(st.booleans()):
            wider = {"int": "long", "long": "float", "float": "double"}
            return wider.get(type_, "bytes" if type_ == "string" else "string")
        case str():
            return type_
        case list():
            return [changed(draw, each) for each in type_] if unchanged_kinds(type_) else type_
    type_ = dict(type_)
    if "fields" in type_:
        fields = [dict(each) for each in type_["fields"]]
        if fields and change:
            fields.pop(draw(st.integers(0, len(fields) - 1)))
        for each in fields:
            if "default" not in each:
                each["type"] = changed(draw, each["type"])
        if draw(st.booleans()):
            fields.append({"name": "e", "type": "int", "default": 7})
        type_["fields"] = fields
    for key in ("items", "values"):
        if key in type_:
            type_[key] = changed(draw, type_[key])
    return type_


def unchanged_kinds(union):
    """Whether no branch could become what another is."""
    return all(isinstance(each, dict) or each in ("null", "boolean") for each in union)


def apache_can_read(reader, writer):
    with warnings.catch_warnings(action="ignore"):
        found = ReaderWriterCompatibilityChecker().get_compatibility(
            parse_with_avro(json.dumps(reader)), parse_with_avro(json.dumps(writer))
        )
    return found.compatibility is SchemaCompatibilityType.compatible


@given(pairs())
def test_the_package_avro_agrees(pair):
    """What it believed too early can't occur here: no union has two branches of one name."""
    reader, writer = pair
    found = reasons_not_to_read(parse_schema(reader), parse_schema(writer))
    assert (found == []) == apache_can_read(reader, writer), found


@given(pairs(), st.data())
def test_what_is_compatible_can_be_read(pair, data):
    reader, writer = pair
    if reasons_not_to_read(parse_schema(reader), parse_schema(writer)):
        return
    parsed = fastavro.parse_schema(writer)
    value = data.draw(values(writer, {}))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, parsed, value)
    written.seek(0)
    fastavro.schemaless_reader(written, parsed, fastavro.parse_schema(reader))


@given(types())
def test_a_normal_form_is_its_own_normal_form(schema):
    read = parse_schema(schema)
    again = parse_schema(json.loads(read.text))
    assert again.text == read.text
    assert reasons_not_to_read(again, read) == []
    assert fastavro.schema.to_parsing_canonical_form(
        json.loads(read.text)
    ) == fastavro.schema.to_parsing_canonical_form(schema)


def values(type_, known):
    """Values of a type."""
    match type_:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "float":
            return st.floats(width=32)
        case "double":
            return st.floats()
        case "bytes":
            return st.binary(max_size=3).filter(is_text)
        case "string":
            return st.text(max_size=3)
        case str():
            return st.deferred(lambda: known[type_])
        case list():
            return st.one_of([values(each, known) for each in type_])
    match type_["type"]:
        case "array":
            # Without a size: an empty union has no values, and then only the empty list is left.
            return st.lists(values(type_["items"], known)).map(lambda found: found[:2])
        case "map":
            pairs = st.tuples(st.text(max_size=2), values(type_["values"], known))
            return st.lists(pairs).map(lambda found: dict(found[:2]))
        case "enum":
            return st.sampled_from(type_["symbols"])
        case "fixed":
            return st.binary(min_size=type_["size"], max_size=type_["size"])
    made = st.fixed_dictionaries(
        {
            each["name"]: st.deferred(lambda each=each: values(each["type"], known))
            for each in type_["fields"]
        }
    )
    known[type_["name"]] = made
    return made


def is_text(data):
    try:
        data.decode()
    except ValueError:
        return False
    return True
