"""Filters of a message search: by payload, a field of it, the key or a header.

A text matches byte for byte anywhere in a key or a header's value; after an equals sign it
must be all of it. Keys that carry a schema's id are decoded first.
"""

from collections.abc import Callable, Mapping

from hermes.console.messages import FoundMessage
from hermes.console.page_request import InputError
from hermes.console.payload_display import ValueReader

Test = Callable[[FoundMessage], bool]


def message_filter(
    params: Mapping[str, str], reader: ValueReader, *, holds_records: bool
) -> Test | None:
    """Compile the filters of a search; None if all messages match.

    Args:
        params: `q` is a text in the payload, or with `field` that field's value; `key` and `header`
            as above, a header as `NAME`, `NAME: TEXT` or `NAME: =TEXT`.
        holds_records: whether the topic's messages have keys and headers.

    Raises:
        InputError: they have none, or the header has no name.
    """
    tests: list[Test] = []
    if params["field"]:
        has_field = reader.has_field(params["field"], params["q"])
        tests.append(lambda each: has_field(each.payload))
    elif params["q"]:
        wanted = _bytes(params["q"])
        tests.append(lambda each: wanted in each.payload)
    if (params["key"] or params["header"]) and not holds_records:
        raise InputError("Only messages of topics with Kafka's format have keys and headers")
    if params["key"]:
        tests.append(_key_test(params["key"], reader))
    if params["header"]:
        tests.append(_header_test(params["header"]))
    if not tests:
        return None
    return lambda each: all(test(each) for test in tests)


def _key_test(text: str, reader: ValueReader) -> Test:
    is_like = _text_test(text)

    def test(each: FoundMessage) -> bool:
        if each.key is None:
            return False
        return is_like(each.key) or is_like(reader.readable(each.key))

    return test


def _header_test(text: str) -> Test:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not name:
        raise InputError("Header: expected NAME, or NAME: TEXT")
    is_like = _text_test(value)

    def test(each: FoundMessage) -> bool:
        return any(
            found == name and (not colon or (data is not None and is_like(data)))
            for found, data in each.headers
        )

    return test


def _text_test(text: str) -> Callable[[bytes], bool]:
    wanted = _bytes(text.removeprefix("="))
    if text.startswith("="):
        return lambda data: data == wanted
    return lambda data: wanted in data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
