"""One row of the tables of settings, and how the tables are read from annotated dataclass fields.

Knows no setting: those are the fields of `BrokerConfig`, `TopicSettings` and `MirrorConfig`.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, get_type_hints

from hermes.config.kinds import Kind
from hermes.errors import ConfigError

# How names say their unit elsewhere, where ours say it in the value: how that is written, by kind.
_UNITS: Final = {
    "duration": {
        **dict.fromkeys(("ms", "millis", "milliseconds"), "ms"),
        **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
        **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
        **dict.fromkeys(("hour", "hours", "hrs"), "h"),
        **dict.fromkeys(("day", "days"), "d"),
        **dict.fromkeys(("time", "age", "duration", "interval", "timeout"), ""),
    },
    "size": {
        **dict.fromkeys(("kb", "mb", "gb", "tb"), ""),
        **dict.fromkeys(("kib", "mib", "gib", "tib"), ""),
        **dict.fromkeys(("size", "bytes"), ""),
    },
}
# How like one another two names are, from 0 to 1, of which one may be a mistake for the other; and
# two that are without their units.
_LIKENESS: Final = 0.7
_STEM_LIKENESS: Final = 0.6


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Attributes:
        doc: one sentence or two for the reference.
        section: its heading there; empty for a topic's.
        key: the name in broker.yaml, unless it is the attribute's without `_ms`.
        is_live: whether it can be changed while the broker runs, by reading broker.yaml again.
        attribute: the field's name; this and the following are filled in when the table is read.
        required: whether the file must give it.
        default: the field's; None when the setting is required.
    """

    kind: Kind
    doc: str
    section: str = ""
    replaces: tuple[str, ...] = ()
    key: str = ""
    is_live: bool = False
    attribute: str = ""
    required: bool = False
    default: Any = None


def table_of(config_class: type) -> dict[str, Setting]:
    """The settings of a dataclass, by key in the file and in the order of its fields.

    Fields whose annotation holds no `Setting` are left out.
    """
    annotations = get_type_hints(config_class, include_extras=True)
    table = {}
    for each in fields(config_class):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        for setting in getattr(annotations[each.name], "__metadata__", ()):
            key = setting.key or each.name.removesuffix("_ms")
            table[key] = replace(
                setting,
                key=key,
                attribute=each.name,
                required=default is MISSING,
                default=None if default is MISSING else default,
            )
    return table


@contextmanager
def named_source(source: str) -> Iterator[None]:
    """Have a ConfigError say where a setting comes from: in a file of this name, say."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.key, error.message, source=source) from None


def parse_settings(
    given: Mapping[Any, object],
    known: Mapping[str, "Setting"],
    hint: Callable[[str, object], str],
    path: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Values by the settings' attributes. Raises ConfigError, with a `hint` for an unknown one."""
    parsed = {}
    for key, value in given.items():
        dotted = ".".join((*path, str(key)))
        setting = known.get(key)
        if setting is None:
            raise ConfigError(dotted, f"unknown setting{hint(str(key), value)}")
        try:
            parsed[setting.attribute] = setting.kind.parse(value)
        except ValueError as error:
            raise ConfigError(dotted, _one_line(str(error))) from None
    return parsed


def check_required(parsed: Mapping[str, Any], known: Mapping[str, "Setting"]) -> None:
    for key, setting in known.items():
        if setting.required and setting.attribute not in parsed:
            raise ConfigError(key, f"missing: {setting.kind.name} ({setting.doc})")


def nearest_setting(
    key: str, value: object, known: Mapping[str, Setting], also_known: Iterable[str] = ()
) -> str:
    """For instance `, did you mean retention_time: 72h?`; empty when none is like it."""
    plain = key.lower().replace(".", "_").replace("-", "_")
    stem, _, unit = plain.rpartition("_")
    for kind, units in _UNITS.items():
        if stem and unit in units:
            # `retention_hours` is more like `retention_options` by its letters.
            of_kind = [name for name, each in known.items() if each.kind.name.startswith(kind)]
            found = max(of_kind, key=lambda name: (_likeness(stem, name), -len(name)), default="")
            if _likeness(stem, found) >= _STEM_LIKENESS:
                is_number = units[unit] and isinstance(value, int | str) and str(value).isdecimal()
                return f", did you mean {found}{f': {value}{units[unit]}' if is_number else ''}?"
    close = difflib.get_close_matches(plain, [*known, *also_known], n=1, cutoff=_LIKENESS)
    return f", did you mean {close[0]}?" if close else ""


def _one_line(text: str) -> str:
    shortened = " ".join(text.split())
    return shortened if len(shortened) <= 300 else shortened[:297] + "..."


def _likeness(stem: str, name: str) -> float:
    names = name, name.rpartition("_")[0]
    return max(difflib.SequenceMatcher(None, stem, each).ratio() for each in names)
