"""Makes and encodes the messages of responses, by functions that are written for each of them.

`kio` walks its schema anew for every message: some twenty calls for a response of two numbers. Here
the walk is done once, and becomes Python's code. The bytes are the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime, timedelta
from io import BytesIO
from itertools import count
from struct import Struct
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints
from uuid import UUID

from hermes.protocol.kafka_primitives import varint

#: How `struct` packs values of a fixed size, by their type in kio's schemas.
_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "error_code": "h",
    "int32": "i",
    "uint32": "I",
    "timedelta_i32": "i",
    "int64": "q",
    "uint64": "Q",
    "float64": "d",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "uuid": "16s",
}

#: What makes a number or bytes of those that aren't.
_CONVERTED: Final = {
    "timedelta_i32": "milliseconds",
    "timedelta_i64": "milliseconds",
    "datetime_i64": "since_1970",
    "uuid": "uuid_bytes",
}

_NO_TIME: Final = timedelta(0)
_ZERO_UUID: Final = bytes(16)

#: Lengths of up to 126, of one more than they are, as flexible versions have them.
_LENGTHS: Final = [varint(length) for length in range(128)]

#: Encodes a message; called with it, and with what writes bytes.
Encoder: TypeAlias = Callable[[Any, Callable[[bytes], Any]], None]


def maker_of(kind: Any) -> Callable[..., Any]:
    """Make the constructor of a message that drops what its version doesn't have.

    What isn't given is the schema's default; 0 for `throttle_time`; None where that is allowed.
    """
    if kind is None:  # the version has none of these
        return lambda **values: None
    names: dict[str, Any] = {"NO_TIME": _NO_TIME}
    parameters, assignments = ["self", "*"], []
    for each in fields(kind):
        default = "=None" if "None" in str(each.type) else ""
        if each.default is not MISSING:
            names[f"default_{each.name}"] = each.default
            default = f"=default_{each.name}"
        elif each.name == "throttle_time":
            default = "=NO_TIME"
        parameters.append(each.name + default)
        assignments.append(f"    self.{each.name} = {each.name}")
    parameters.append("**left_out")
    body = assignments or ["    pass"]
    exec("\n".join([f"def __init__({', '.join(parameters)}):", *body]), names)
    # `kio`'s messages refuse to be changed, and are slow to make for that.
    inside = {"__slots__": (), "__init__": names["__init__"], "__setattr__": object.__setattr__}
    return type(kind.__name__, (kind,), inside)


def encoder_of(kind: Any) -> Encoder:
    """Make the function that encodes a message of `kio`'s, or one that `maker_of` made."""
    source = _Source(kind.__flexible__)
    source.add_message(kind, "message")
    source.pack()
    names = source.names
    exec("\n".join(["def encode(message, write):", *source.lines]), names)
    encode: Encoder = names["encode"]
    return encode


class _Source:
    """The source of a function, and the names that it uses.

    Of what has a fixed size the formats and values are collected; `pack` writes them.
    """

    def __init__(self, is_flexible: bool) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "BytesIO": BytesIO,
            "LENGTHS": _LENGTHS,
            "NO_TIME": _NO_TIME,
            "milliseconds": _milliseconds,
            "since_1970": _since_1970,
            "tags_of": _tags_of,
            "uuid_bytes": _uuid_bytes,
            "varint": varint,
        }
        self._is_flexible = is_flexible
        self._numbers = count()
        self._indent = 1
        self._write = "write"
        self._format = ""
        self._values: list[str] = []

    def add_message(self, kind: Any, name: str) -> None:
        hints = get_type_hints(kind)
        tagged: dict[int, Field[Any]] = {}
        for field in fields(kind):
            tag = field.metadata.get("tag")
            if tag is None:
                self._add_field(field, hints[field.name], f"{name}.{field.name}")
            else:
                tagged[tag] = field
        if tagged:
            self._add_tags(tagged, hints, name)
        elif self._is_flexible:
            self._format += "x"  # there are no tags

    def pack(self) -> None:
        """Write what has been collected."""
        if self._format:
            pack = self._named("pack", Struct(f">{self._format}").pack)
            self._line(f"{self._write}({pack}({', '.join(self._values)}))")
            self._format, self._values = "", []

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def _new(self, name: str) -> str:
        return f"{name}{next(self._numbers)}"

    def _named(self, name: str, what: Any) -> str:
        name = self._new(name)
        self.names[name] = what
        return name

    def _add_field(self, field: Field[Any], hint: Any, value: str) -> None:
        options = [each for each in get_args(hint) if each is not type(None)]
        is_optional = get_origin(hint) is not tuple and len(options) < len(get_args(hint))
        inner = options[0] if is_optional else hint
        wire = field.metadata.get("kafka_type")
        if get_origin(inner) is tuple:
            self._add_array(wire, get_args(inner)[0], value)
        elif wire is not None:
            self._add_value(wire, value)
        elif is_optional and "tag" not in field.metadata:
            self._add_optional(inner, value)
        else:
            self.add_message(inner, value)

    def _add_value(self, wire: str, value: str) -> None:
        if wire in _FORMATS:
            convert = _CONVERTED.get(wire)
            self._format += _FORMATS[wire]
            converted = value if convert is None else f"{convert}({value})"
            if convert == "milliseconds":
                converted = f"0 if {value} is NO_TIME else {converted}"
            self._values.append(converted)
            return
        data = self._new("data")
        encoded = f"{value}.encode()" if wire == "string" else value
        self._line(f"{data} = None if {value} is None else {encoded}")
        self._add_length(data, "h" if wire == "string" else "i")
        self.pack()
        self._line(f"if {data}: {self._write}({data})")

    def _add_length(self, of: str, legacy: str) -> None:
        if self._is_flexible:
            length = self._new("length")
            self.pack()
            self._line(f"{length} = 0 if {of} is None else len({of}) + 1")
            encoded = f"LENGTHS[{length}] if {length} < {len(_LENGTHS)} else varint({length})"
            self._line(f"{self._write}({encoded})")
        else:
            self._format += legacy
            self._values.append(f"-1 if {of} is None else len({of})")

    def _add_array(self, wire: str | None, part: Any, value: str) -> None:
        items, item = self._new("items"), self._new("item")
        self._line(f"{items} = {value}")
        self._add_length(items, "i")
        self.pack()
        self._line(f"for {item} in {items} or ():")
        self._indent += 1
        if wire is None:
            self.add_message(part, item)
        else:
            self._add_value(wire, item)
        self.pack()
        self._indent -= 1

    def _add_optional(self, kind: Any, value: str) -> None:
        self.pack()
        self._line(f"if {value} is None: {self._write}(b'\\xff')")
        self._line("else:")
        self._indent += 1
        self._line(f"{self._write}(b'\\x01')")
        self.add_message(kind, value)
        self.pack()
        self._indent -= 1

    def _add_tags(
        self, tagged: Mapping[int, Field[Any]], hints: Mapping[str, Any], name: str
    ) -> None:
        from kio.serial._implicit_defaults import get_tagged_field_default

        self.pack()
        tags = self._new("tags")
        self._line(f"{tags} = []")
        for tag, field in sorted(tagged.items()):
            value, outer = f"{name}.{field.name}", self._write
            self._line(f"if {value} != {self._named('default', get_tagged_field_default(field))}:")
            self._indent += 1
            part, self._write = self._new("part"), self._new("write")
            self._line(f"{part} = BytesIO()")
            self._line(f"{self._write} = {part}.write")
            self._add_field(field, hints[field.name], value)
            self.pack()
            self._line(f"{tags}.append(({tag}, {part}.getvalue()))")
            self._write = outer
            self._indent -= 1
        self._line(f"{self._write}(tags_of({tags}) if {tags} else b'\\0')")


def _tags_of(tags: list[tuple[int, bytes]]) -> bytes:
    parts = [varint(tag) + varint(len(data)) + data for tag, data in tags]
    return varint(len(parts)) + b"".join(parts)


def _milliseconds(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


def _since_1970(time: datetime | None) -> int:
    return -1 if time is None else round(time.timestamp() * 1000)


def _uuid_bytes(uuid: UUID | None) -> bytes:
    return _ZERO_UUID if uuid is None else uuid.bytes
