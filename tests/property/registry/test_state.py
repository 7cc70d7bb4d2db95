"""The registry as a state machine: any calls, in any order, against what must always hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.registry.associations import Associate, Dissociate
from hermes.registry.drafts import Draft
from hermes.registry.entities import Association, Reference
from hermes.registry.errors import RegistryError
from hermes.registry.events import SchemaRegistered, decode_event, encode_event
from hermes.registry.mutations import (
    DeleteConfig,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    SetConfig,
    SetMode,
)
from hermes.registry.registration import LEVELS, MODES, RegisterSchema
from hermes.registry.state import RegistryState

SUBJECTS = st.sampled_from(["a", "b", "c"])
VERSIONS = st.integers(1, 4)
ANY_SUBJECT = st.none() | SUBJECTS


@st.composite
def drafts(draw):
    if draw(st.integers(0, 4)) == 0:
        return Draft("JSON", json.dumps({"title": draw(st.sampled_from("xyz"))}))
    fields = [
        {"name": name, "type": draw(st.sampled_from(["int", "long"])), "default": 0}
        for name in draw(st.lists(st.sampled_from("pqr"), unique=True))
    ]
    references = st.builds(Reference, st.just("n"), SUBJECTS, st.sampled_from([-1, 1, 2]))
    return Draft(
        "AVRO",
        json.dumps({"type": "record", "name": draw(st.sampled_from("RS")), "fields": fields}),
        tuple(draw(st.lists(references, max_size=1))),
    )


def associations(subject, kind, lifecycle, frozen):
    return (Association("i", "n", "s", "topic", kind, subject, lifecycle, frozen),)


CALLS = st.one_of(
    st.builds(RegisterSchema, SUBJECTS, drafts(), st.booleans()),
    st.builds(RegisterSchema, SUBJECTS, drafts()),
    st.builds(RegisterSchema, SUBJECTS, drafts(), id=st.integers(1, 9), version=VERSIONS),
    st.builds(DeleteVersion, SUBJECTS, VERSIONS | st.just(-1), st.booleans()),
    st.builds(DeleteSubject, SUBJECTS, st.booleans()),
    st.builds(
        SetConfig,
        ANY_SUBJECT,
        st.fixed_dictionaries({"compatibility": st.sampled_from([*LEVELS, "NONE", "NONE"])}),
    ),
    st.builds(DeleteConfig, ANY_SUBJECT),
    st.builds(SetMode, ANY_SUBJECT, st.sampled_from([*MODES, "READWRITE"]), st.booleans()),
    st.builds(DeleteMode, ANY_SUBJECT),
    st.builds(
        Associate,
        st.builds(
            associations,
            SUBJECTS,
            st.sampled_from(["key", "value"]),
            st.sampled_from(["WEAK", "STRONG"]),
            st.booleans(),
        ),
        st.booleans(),
    ),
    st.builds(Dissociate, st.just("i"), st.none(), st.sampled_from([(), ("key",)]), st.booleans()),
)


def run(calls):
    """The state and the events that calls come to, each call checked."""
    state, events, given_out = RegistryState(), [], {}
    for call in calls:
        before = state.to_json()
        try:
            decision = call.decide(state)
        except RegistryError:
            assert state.to_json() == before
            continue
        assert state.to_json() == before  # to decide changes nothing
        if decision.event is None:
            continue
        event = decision.event
        assert decode_event(encode_event(event)) == event
        deleted = isinstance(event, SchemaRegistered) and [
            each for each in state.versions(event.subject) if each.is_deleted
        ]
        known = isinstance(event, SchemaRegistered) and state.id_of(event.schema.identity)
        highest = state.last_id
        state.apply(event)
        events.append(event)
        if isinstance(event, SchemaRegistered):
            identity = event.schema.identity
            # An id stands for one schema for ever, also when it is gone for good.
            assert given_out.setdefault(event.id, identity) == identity or call.id is not None
            assert event.id == known or event.id > highest or call.id is not None
            for each in deleted:
                if before_schema(before, each.id) == event.schema.to_json():
                    assert event.id == each.id  # a schema that was deleted softly is back
            own = Reference("n", call.subject, -1)  # a reference to what has just been replaced
            if own not in call.draft.references:
                again = call.decide(state)  # the same call again writes nothing
                assert again.event is None
                assert again.answer["id"] == event.id
        check(state)
    return state, events


def before_schema(before, schema_id):
    return dict(map(tuple, before["schemas"])).get(schema_id)


def check(state):
    """What holds for every state."""
    used = set()
    for subject in state.subjects():
        versions = state.versions(subject)
        assert versions
        for each in versions:
            used.add(each.id)
            assert (subject, each.number) in state.uses(each.id)
            for reference in state.schemas[each.id].references:
                assert state.version(reference.subject, reference.version) is not None
                place = reference.subject, reference.version
                assert (subject, each.number) in state.referrers(*place)
    assert used == set(state.schemas)
    assert all(schema_id <= state.last_id for schema_id in used)
    for schema_id, schema in state.schemas.items():
        assert state.id_of(schema.identity) == schema_id


@given(st.lists(CALLS, max_size=30))
def test_the_same_events_give_the_same_state(calls):
    state, events = run(calls)
    replayed = RegistryState()
    for event in events:
        replayed.apply(decode_event(encode_event(event)))
    assert replayed.to_json() == state.to_json()
    assert vars(replayed) == vars(state)


@given(st.lists(CALLS, max_size=20), st.lists(CALLS, max_size=20))
def test_a_snapshot_is_as_good_as_the_events(calls, further):
    state, _ = run(calls)
    kept = json.loads(json.dumps(state.to_json()))
    restored, copied = RegistryState.from_json(kept), state.copy()
    assert vars(restored) == vars(state) == vars(copied)
    for call in further:
        outcomes = []
        for each in (state, restored):
            try:
                decision = call.decide(each)
            except RegistryError as error:
                outcomes.append((error.code, error.message))
            else:
                outcomes.append((decision.event, decision.answer))
                if decision.event is not None:
                    each.apply(decision.event)
        assert outcomes[0] == outcomes[1]
    assert vars(restored) == vars(state)
    assert copied.to_json() == kept  # a copy stays as it is


@given(st.lists(CALLS, max_size=20), st.lists(CALLS, max_size=20))
def test_events_that_contradict_a_state_change_nothing(calls, others):
    state, _ = run(calls)
    for event in run(others)[1]:
        before = state.to_json()
        try:
            state.apply(event)
        except ValueError:
            assert state.to_json() == before


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"event": "made-up"}', b'{"event": []}'])
def test_what_is_no_event(data):
    with pytest.raises(ValueError):
        decode_event(data)
