"""One row of the tables of settings, and how the tables are read from annotated dataclass fields.

Knows no setting in particular: those are the fields of `BrokerConfig` and `TopicConfig`.
"""

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, get_type_hints

from hermes.config.kinds import Kind


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    Attributes:
        kind: how the value is read and shown.
        doc: one sentence or two for the reference.
        section: the heading it belongs under; empty for a topic's.
        replaces: the Kafka 0.7 keys that it replaces.
        key: the name in broker.yaml, unless it is the attribute's without `_ms`.
        is_live: whether it can be changed while the broker runs, by reading broker.yaml again.
        attribute: the field's name; this and the following are filled in when the table is read.
        required: whether broker.yaml must give it.
        default: the field's default; None when the setting is required.
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
    """Read the annotated fields of a dataclass.

    Args:
        config_class: a dataclass; fields whose annotation holds no `Setting` are left out.

    Returns:
        Settings by their key in broker.yaml, in the order of the fields.
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
