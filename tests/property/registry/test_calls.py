"""Whatever is asked: an answer, in JSON, that says what was wrong; never a fault of ours."""

import json

from hypothesis import given
from hypothesis import strategies as st
from memory_registry import MemoryRegistry

from hermes.registry.rest_messages import RestRequest
from hermes.registry.service import RegistryService, kind_of


def words(text):
    return st.sampled_from(text.split())


SEGMENTS = words(
    "subjects versions schemas ids types guids config mode compatibility associations "
    "resources metadata schema referencedby latest contexts hermes a b 1 2 -1"
) | st.text(max_size=3)
PATHS = st.one_of(
    st.lists(SEGMENTS, max_size=6).map(tuple),
    st.sampled_from(
        [
            ("subjects", "a", "versions"),
            ("subjects", "a"),
            ("compatibility", "subjects", "a", "versions", "latest"),
            ("config", "a"),
            ("mode",),
            ("associations",),
        ]
    ),
)
NAMES = words(
    "deleted deletedOnly permanent normalize verbose subject offset limit force key "
    "value subjectPrefix fetchMaxId defaultToGlobal cascadeLifecycle associationType"
)
QUERIES = st.dictionaries(
    NAMES,
    st.lists(st.sampled_from(["true", "false", "1", "-1", "a"]) | st.text(), min_size=1),
    max_size=3,
)
KEYS = words(
    "type name fields items values symbols size default aliases namespace doc order "
    "logicalType precision scale schema schemaType references subject version id "
    "metadata ruleSet properties compatibility mode associations resourceName "
    "resourceId resourceNamespace frozen"
)
LEAVES = (
    words(
        "null boolean int long float double bytes string record enum fixed array map A B "
        "a.B AVRO JSON NONE FULL IMPORT READONLY decimal topic"
    )
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@st.composite
def bodies(draw):
    body = draw(st.dictionaries(KEYS, DOCUMENTS, max_size=4))
    if draw(st.booleans()):
        body["schema"] = json.dumps(draw(DOCUMENTS))
        body.pop("schemaType", None) if draw(st.booleans()) else None
    return json.dumps(body).encode()


ASKS = st.builds(
    RestRequest,
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    PATHS,
    QUERIES,
    bodies() | st.binary(max_size=20),
)


@given(st.lists(ASKS, max_size=8))
def test_every_call_is_answered(asks):
    service = RegistryService(MemoryRegistry())
    for ask in asks:
        answer = service.answer(ask).result()
        assert answer.status in (200, 204, 403, 404, 405, 409, 422)
        assert kind_of(ask)
        if answer.status >= 400:
            found = json.loads(answer.body)
            assert str(found["error_code"]).startswith(str(answer.status))
            assert found["message"].isprintable()
            assert len(found["message"]) < 5000
