import pytest

from hermes.errors import InvalidTopicError
from hermes.protocol import check_new_topic_name, check_topic_name

# The names that the recorded 0.7.2 broker accepted, and more at the edges of its ranges.
LEGAL = [
    "a",
    "UPPER",
    "with space",
    "dash-name",
    "dash-2",
    "under_score",
    "dot.ted",
    "...",
    ".hidden",
    "\\back",
    "\xa0",
    "ünï",
    "日本",
    "star*",
    "q?",
    "colon:",
    "per%cent",
    "\U0001f600",
    "\x20",
    "\x7e",
    "\ud7ff",
    "\uf900",
    "\uffef",
    "x" * 255,
]

ILLEGAL = [
    "",
    ".",
    "..",
    "a/b",
    "tab\there",
    "nl\n",
    "nul\0",
    "\x01",
    "\x1f",
    "\x7f",
    "\x80",
    "\x9f",
    "\ud800",
    "\udfff",
    "\ue000",
    "\uf8ff",
    "\ufff0",
    "\ufffd",
    "\uffff",
    "x" * 256,
]


@pytest.mark.parametrize("name", LEGAL)
def test_legal_names(name):
    check_topic_name(name)


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_names(name):
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)


def test_length_is_counted_in_utf16_units_as_java_does():
    check_topic_name("\U0001f600" * 127)
    with pytest.raises(InvalidTopicError, match="256 characters, 255 are allowed"):
        check_topic_name("\U0001f600" * 128)


def test_the_maximum_length_is_a_setting():
    check_topic_name("abc", 3)
    with pytest.raises(InvalidTopicError):
        check_topic_name("abcd", 3)


def test_the_error_names_the_character():
    with pytest.raises(InvalidTopicError, match=r"U\+002F"):
        check_topic_name("a/b")


def test_a_new_name_must_leave_room_for_the_partition_in_a_directory_name():
    check_new_topic_name("x" * 253, longest_suffix=2)
    check_new_topic_name("é" * 126, longest_suffix=3)
    with pytest.raises(InvalidTopicError, match="directory names of 256 bytes"):
        check_new_topic_name("x" * 254, longest_suffix=2)
    with pytest.raises(InvalidTopicError, match="directory names of 256 bytes"):
        check_new_topic_name("é" * 127, longest_suffix=2)


def test_a_new_name_must_be_one_that_zookeeper_holds():
    with pytest.raises(InvalidTopicError, match=r"U\+1F600.*ZooKeeper"):
        check_new_topic_name("\U0001f600")


def test_a_new_name_must_be_legal_in_the_first_place():
    with pytest.raises(InvalidTopicError):
        check_new_topic_name("a/b")
