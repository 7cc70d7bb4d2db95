"""Validates the array lengths that a request declares, before it is decoded.

The readers of `kio` make room for as many things as a count says, and only then look whether these
are there. A few bytes would so end the process. `ArrayBounds` walks the same schema over the same
bytes beforehand: no array may declare more than the bytes that are left can hold. Nor may one be
null where the schema doesn't allow that, which they don't check, either.

They refuse tags that they don't know, too, which later releases may add to any version, and which
are to be ignored (KIP-482). So these are left out.

A walk costs some tenths of a microsecond for each string and array; what has a fixed size is
stepped over at once.
"""

from dataclasses import fields
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from hermes.errors import RemoteProtocolError
from hermes.protocol.kafka_primitives import MAX_TAGS, varint
from hermes.protocol.loops import Step, StepKind
from hermes.protocol.wire import Buffer

#: How many bytes values of a fixed size take, by their type in kio's schemas.
_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


#: What is to be left out: from where, to where, and what stands there instead.
_Cut: TypeAlias = tuple[int, int, bytes]

# Looked up for each step.
_FIXED, _SIZED, _COMPACT, _ARRAY, _OPTIONAL, _TAGS = StepKind


class ArrayBounds:
    def __init__(self, entity: Any) -> None:
        self.steps = _steps_of(entity)

    def check(self, data: Buffer, position: int) -> Buffer:
        """Refuse a request whose arrays declare more than there is.

        Args:
            position: where the request's body begins.

        Returns:
            The frame; a copy without them if it has tags that nobody knows.

        Raises:
            RemoteProtocolError: it does, has more tags than allowed, or ends early.
        """
        cuts: list[_Cut] = []
        try:
            end = _walk(self.steps, data, position, cuts)
        except IndexError:
            end = len(data) + 1
        if end > len(data):
            raise RemoteProtocolError("it ends early")
        return _without(data, cuts) if cuts else data


def _steps_of(entity: Any) -> list[Step]:
    is_flexible = entity.__flexible__
    hints = get_type_hints(entity)
    steps: list[Step] = []
    tagged: dict[int, list[Step] | None] = {}
    for field in fields(entity):
        found = _steps_for(field, hints[field.name], is_flexible)
        tag = field.metadata.get("tag")
        if tag is not None:
            tagged[tag] = found if _is_walked(found) else None
        elif steps and found[0][0] is _FIXED and steps[-1][0] is _FIXED:
            steps[-1] = (_FIXED, steps[-1][1] + found[0][1])
        else:
            steps += found
    if is_flexible:
        steps.append((_TAGS, tagged))
    return steps


def _steps_for(field: Any, hint: Any, is_flexible: bool) -> list[Step]:
    """The steps over one field; one but for a part that must be there."""
    options = [each for each in get_args(hint) if each is not type(None)]
    is_optional = get_origin(hint) is not tuple and len(options) < len(get_args(hint))
    inner = options[0] if is_optional else hint
    wire = field.metadata.get("kafka_type")
    if get_origin(inner) is tuple:
        part = get_args(inner)[0]
        parts = _steps_of(part) if wire is None else [_step_for(wire, is_flexible)]
        return [(_ARRAY, (0 if is_flexible else 4, parts, _least(parts), is_optional))]
    if wire is not None:
        return [_step_for(wire, is_flexible)]
    parts = _steps_of(inner)
    return [(_OPTIONAL, parts)] if is_optional else parts


def _step_for(wire: str, is_flexible: bool) -> Step:
    if wire in _SIZES:
        return _FIXED, _SIZES[wire]
    if is_flexible:
        return _COMPACT, None
    return _SIZED, 2 if wire == "string" else 4


def _is_walked(steps: list[Step]) -> bool:
    """Whether there is something to check: arrays, or tags that may be unknown."""
    return any(
        kind is _ARRAY or kind is _TAGS or (kind is _OPTIONAL and _is_walked(what))
        for kind, what in steps
    )


def _least(steps: list[Step]) -> int:
    least = 0
    for kind, what in steps:
        if kind is _FIXED or kind is _SIZED:
            least += what
        else:
            least += max(1, what[0]) if kind is _ARRAY else 1
    return max(1, least)


def _walk(steps: list[Step], data: Buffer, position: int, cuts: list[_Cut]) -> int:
    """The position after some steps, which may be beyond the end; notes what is to be left out.

    Raises:
        IndexError: it ends within a number.
        RemoteProtocolError: an array declares more than there is.
    """
    for kind, what in steps:
        if kind is _FIXED:
            position += what
        elif kind is _COMPACT:
            length = data[position]
            position += 1
            if length > 0x7F:
                length, position = _varint(data, position - 1)
            if length > 1:
                position += length - 1
        elif kind is _SIZED:
            length = int.from_bytes(data[position : position + what], signed=True)
            position += what + max(length, 0)
        elif kind is _ARRAY:
            position = _walk_array(what, data, position, cuts)
        elif kind is _OPTIONAL:
            position += 1
            if data[position - 1] < 0x80:  # -1 says that it isn't there
                position = _walk(what, data, position, cuts)
        else:
            count = data[position]
            position += 1
            if count:
                position = _walk_tags(what, data, position - 1, cuts)
    return position


def _walk_array(
    what: tuple[int, list[Step], int, bool], data: Buffer, position: int, cuts: list[_Cut]
) -> int:
    width, parts, least, is_optional = what
    if width:
        count = int.from_bytes(data[position : position + width], signed=True)
        position += width
    else:
        count, position = _varint(data, position)
        count -= 1
    if count <= 0:
        if count and not is_optional:
            raise RemoteProtocolError("an array is null that must not be")
        return position
    if count * least > len(data) - position:
        raise RemoteProtocolError(
            f"an array claims {count} things where {max(len(data) - position, 0)} bytes are left"
        )
    if len(parts) == 1 and parts[0][0] is _FIXED:
        size: int = parts[0][1]
        return position + count * size
    for _ in range(count):
        position = _walk(parts, data, position, cuts)
    return position


def _walk_tags(
    known: dict[int, list[Step] | None], data: Buffer, position: int, cuts: list[_Cut]
) -> int:
    begin = position
    count, position = _varint(data, position)
    if count > MAX_TAGS:
        raise RemoteProtocolError(f"a part of it has {count} tags; up to {MAX_TAGS} are allowed")
    after_count = position
    left_out: list[_Cut] = []
    known_count = 0
    for _ in range(count):
        start = position
        tag, position = _varint(data, position)
        before_size = position
        size, position = _varint(data, position)
        end = position + size
        parts = known.get(tag)
        if tag not in known:
            left_out.append((start, end, b""))
        else:
            known_count += 1
        if parts:
            within: list[_Cut] = []
            if _walk(parts, data, position, within) > end:
                raise RemoteProtocolError("a tag holds more than it says")
            if within:
                part = _without(data[:end], within, position)
                left_out.append((before_size, end, varint(len(part)) + part))
        position = end
    if left_out:
        cuts += [(begin, after_count, varint(known_count)), *left_out]
    return position


def _without(data: Buffer, cuts: list[_Cut], position: int = 0) -> bytes:
    parts: list[Buffer] = []
    for start, end, instead in cuts:
        parts += (data[position:start], instead)
        position = end
    return b"".join((*parts, data[position:]))


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise RemoteProtocolError("a number that doesn't end")
