"""What registering and comparing come to in a state."""

import json

import pytest

from hermes.registry.associations import Associate, Dissociate
from hermes.registry.drafts import Draft
from hermes.registry.entities import Association, Reference, document_text
from hermes.registry.errors import RegistryError
from hermes.registry.limits import MAX_REFERENCES
from hermes.registry.mutations import DeleteSubject, DeleteVersion, SetConfig, SetMode
from hermes.registry.registration import RegisterSchema
from hermes.registry.schema_queries import CompatibilityCheck
from hermes.registry.state import RegistryState


@pytest.fixture
def state():
    return RegistryState()


def do(state, change):
    """Decide and apply, as a store would."""
    decision = change.decide(state)
    if decision.event is not None:
        state.apply(decision.event)
    return decision.answer


def record(*fields, name="A", references=(), owner=""):
    fields = [each if isinstance(each, dict) else {"name": each, "type": "int"} for each in fields]
    text = json.dumps({"type": "record", "name": name, "fields": fields})
    metadata = document_text({"properties": {"owner": owner}} if owner else None)
    return Draft("AVRO", text, references, metadata)


def refused(code, state, change):
    before = state.to_json()
    with pytest.raises(RegistryError) as caught:
        do(state, change)
    assert caught.value.code == code
    assert state.to_json() == before
    return caught.value.message


def test_one_schema_has_one_id_everywhere(state):
    first = do(state, RegisterSchema("a", record("x")))
    spaced = Draft("AVRO", json.dumps(json.loads(record("x").text), indent=4))
    assert do(state, RegisterSchema("b", spaced))["id"] == first["id"]
    assert do(state, RegisterSchema("b", record("x", owner="ann")))["id"] != first["id"]


def test_json_schemas_are_the_same_without_regard_to_spaces(state):
    do(state, SetConfig(None, {"compatibility": "NONE"}))
    first = do(state, RegisterSchema("a", Draft("JSON", '{"a": 1, "b": 2}')))
    assert do(state, RegisterSchema("a", Draft("JSON", '{"a":1,"b":2}'))) == first
    other = do(state, RegisterSchema("a", Draft("JSON", '{"b":2,"a":1}')))
    assert other["id"] != first["id"]
    sorted_ = do(state, RegisterSchema("a", Draft("JSON", '{"b":2,"a":1}'), normalize=True))
    assert sorted_["id"] == first["id"]
    do(state, SetConfig("a", {"normalize": True}))
    assert do(state, RegisterSchema("a", Draft("JSON", '{"b":2,"a":1}')))["id"] == first["id"]
    assert state.schemas[first["id"]].text == '{"a": 1, "b": 2}'  # as it came


def test_importing(state):
    do(state, SetMode("a", "IMPORT"))
    imported = RegisterSchema("a", record("x"), id=100, version=7)
    assert do(state, imported) == do(state, imported)
    assert (state.last_id, state.versions("a")[0].number) == (100, 7)
    refused(42205, state, RegisterSchema("a", record("y"), id=100, version=8))
    refused(42205, state, RegisterSchema("a", record("x"), id=101, version=8))
    refused(42205, state, RegisterSchema("a", record("y"), id=101, version=7))
    refused(42205, state, RegisterSchema("a", record("y")))
    do(state, RegisterSchema("a", record("y"), id=50))  # not compatible, and not asked
    do(state, SetMode("a", "READWRITE"))
    refused(42205, state, RegisterSchema("a", record("z"), id=102))
    assert do(state, RegisterSchema("b", record("z")))["id"] == 101
    refused(42205, state, SetMode("a", "IMPORT"))
    do(state, SetMode("a", "IMPORT", force=True))


def test_a_version_that_is_given_is_the_next_one(state):
    first = do(state, RegisterSchema("a", record("x"), version=1))
    assert do(state, RegisterSchema("a", record("x"), version=1)) == first
    second = record("x", {"name": "y", "type": "int", "default": 0})
    for taken_or_beyond in (1, 3, 2**31 - 1):
        refused(42201, state, RegisterSchema("a", second, version=taken_or_beyond))
    assert do(state, RegisterSchema("a", second, version=2))["version"] == 2


def test_read_only_for_all_can_be_an_override(state):
    do(state, SetMode("a", "READWRITE"))
    do(state, SetMode(None, "READONLY"))
    do(state, RegisterSchema("a", record("x")))  # its own mode goes before
    refused(42205, state, RegisterSchema("b", record("x")))
    do(state, SetMode(None, "READONLY_OVERRIDE"))
    refused(42205, state, RegisterSchema("a", record("x", "y")))
    refused(42205, state, DeleteSubject("a"))


def test_subjects_go_with_their_resource_only_where_they_could_be_deleted(state):
    subjects = [("a", "key", "STRONG"), ("b", "value", "STRONG")]
    made = [
        Association("id", "t", "x", "topic", kind, each, life, False)
        for each, kind, life in subjects
    ]
    do(state, Associate(tuple(made), may_replace=False))
    do(state, RegisterSchema("a", record("x")))
    used = record({"name": "a", "type": "A"}, name="B", references=(Reference("A", "a", 1),))
    do(state, RegisterSchema("c", used))
    gone = Dissociate("id", "topic", (), cascade=True)
    assert "of 'c' refers to it" in refused(42206, state, gone)
    do(state, DeleteSubject("c"))
    do(state, RegisterSchema("b", used))  # which goes with it
    do(state, SetMode("b", "READONLY"))
    refused(42205, state, gone)
    do(state, SetMode("b", "READWRITE"))
    do(state, gone)
    assert (state.is_live("a"), state.is_live("b"), state.associations) == (False, False, {})


def test_groups_of_compatibility(state):
    do(state, SetConfig("a", {"compatibilityGroup": "owner"}))
    do(state, RegisterSchema("a", record("x", owner="ann")))
    do(state, RegisterSchema("a", record("y", owner="bob")))
    refused(409, state, RegisterSchema("a", record("y", owner="ann")))
    assert do(state, SetConfig("a", {"compatibilityGroup": None})) == {"compatibilityGroup": None}
    refused(409, state, RegisterSchema("a", record("x", "z", owner="bob")))


def test_settings_are_changed_one_by_one(state):
    do(state, SetConfig("a", {"compatibility": "full", "normalize": True}))
    told = do(state, SetConfig("a", {"compatibilityLevel": "NONE"}))
    assert told == {"compatibility": "NONE"}
    assert json.loads(state.configs["a"]) == {"compatibilityLevel": "NONE", "normalize": True}


def test_a_subject_that_is_gone_has_no_settings(state):
    for delete in (DeleteSubject("a"), DeleteVersion("a", 1)):
        do(state, RegisterSchema("a", record("x")))
        do(state, SetConfig("a", {"compatibility": "NONE"}))
        do(state, SetMode("a", "READWRITE"))
        do(state, delete)
        assert "a" not in state.configs
        assert "a" not in state.modes
        do(state, DeleteSubject("a", permanent=True))


def test_references_through_references(state):
    do(state, RegisterSchema("zip", record("code", name="Zip")))
    address = record(
        {"name": "zip", "type": "Zip"}, name="Address", references=(Reference("Zip", "zip", -1),)
    )
    do(state, RegisterSchema("address", address))
    person = record(
        {"name": "home", "type": "Address"},
        {"name": "z", "type": "Zip"},
        name="Person",
        references=(Reference("Address", "address", 1),),
    )
    do(state, RegisterSchema("person", person))
    assert state.schemas[2].references == (Reference("Zip", "zip", 1),)
    worse = record(
        {"name": "home", "type": "Address"},
        {"name": "z", "type": "string"},
        name="Person",
        references=(Reference("Address", "address", 1),),
    )
    reason = refused(409, state, RegisterSchema("person", worse))
    assert "Person.z: string can't be read from record 'Zip'" in reason
    clash = record(
        {"name": "home", "type": "Address"},
        name="Zip",
        references=(Reference("Address", "address", 1),),
    )
    assert "'Zip' is defined twice" in refused(42201, state, RegisterSchema("clash", clash))


def test_a_type_behind_a_reference_may_change_compatibly(state):
    do(state, RegisterSchema("item", record("a", name="Item")))
    do(
        state,
        RegisterSchema(
            "item", record("a", {"name": "b", "type": "int", "default": 0}, name="Item")
        ),
    )
    do(state, SetConfig("item", {"compatibility": "NONE"}))
    do(state, RegisterSchema("item", record("c", name="Item")))

    def order(version):
        return record(
            {"name": "item", "type": "Item"},
            name="Order",
            references=(Reference("Item", "item", version),),
        )

    do(state, RegisterSchema("order", order(1)))
    do(state, RegisterSchema("order", order(2)))
    reason = refused(409, state, RegisterSchema("order", order(3)))
    assert "version 2: the new schema can't read older data: Order.item.c" in reason


def test_a_json_schema_can_not_be_part_of_an_avro_schema(state):
    do(state, RegisterSchema("json", Draft("JSON", "{}")))
    draft = record("x", references=(Reference("J", "json", 1),))
    assert "not an Avro schema" in refused(42201, state, RegisterSchema("a", draft))


def test_a_chain_of_references_has_an_end(state):
    for number in range(MAX_REFERENCES + 1):
        references = (Reference(f"R{number - 1}", f"s{number - 1}", 1),) if number else ()
        draft = Draft("JSON", f'{{"title": "{number}"}}', references)
        do(state, RegisterSchema(f"s{number}", draft))
    last = record("x", references=(Reference("R", f"s{MAX_REFERENCES}", 1),))
    reason = refused(42201, state, RegisterSchema("last", last))
    assert f"more than {MAX_REFERENCES} schemas" in reason


def test_the_type_of_a_subject_s_schemas_stays(state):
    do(state, RegisterSchema("a", record("x")))
    reason = refused(409, state, RegisterSchema("a", Draft("JSON", "{}")))
    assert "the type JSON differs from AVRO" in reason


def test_comparing_with_nothing(state):
    for number in (None, -1):
        found = CompatibilityCheck("new", record("x"), False, number, True).answer(state)
        assert found == {"is_compatible": True, "messages": []}


def test_an_excerpt_answers_as_the_whole_state_does(state):
    do(state, RegisterSchema("item", record("a", name="Item")))
    references = (Reference("Item", "item", -1),)
    order = record({"name": "item", "type": "Item"}, name="Order", references=references)
    do(state, RegisterSchema("order", order))
    do(state, RegisterSchema("other", record("x")))
    excerpt = state.excerpt("order", references)
    assert excerpt.subject_count == 2
    assert RegisterSchema("order", order).decide(excerpt) == RegisterSchema("order", order).decide(
        state
    )


def test_comparing_with_a_long_history_has_an_end(state):
    do(state, SetConfig("a", {"compatibility": "NONE"}))
    for number in range(6):
        kind = {"type": "fixed", "name": "F", "size": 1, "doc": f"{number}" * 850_000}
        do(state, RegisterSchema("a", Draft("AVRO", json.dumps(kind))))
    small = Draft("AVRO", json.dumps({"type": "fixed", "name": "F", "size": 1}))
    do(state, SetConfig("a", {"compatibility": "BACKWARD_TRANSITIVE"}))
    reason = refused(409, state, RegisterSchema("a", small))
    assert "choose a level that isn't transitive" in reason
    do(state, SetConfig("a", {"compatibility": "BACKWARD"}))
    do(state, RegisterSchema("a", small))
