"""`hermes access`: which of broker.yaml's access rules decides about somebody."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hermes.cli.options import JSON_OPTION
from hermes.cli.terminal import note, write_json, write_line
from hermes.config.broker import BrokerConfig
from hermes.config.loading import load_broker_config
from hermes.config.requested import Requested
from hermes.errors import ConfigError, StorageError
from hermes.quoting import quoted
from hermes.security import (
    CLUSTER,
    AccessDecision,
    Operation,
    Resource,
    action_text,
)
from hermes.security.access import OPERATIONS_ON
from hermes.security.decisions import explain_decision
from hermes.storage import FileLayer
from hermes.storage.requested_file import read_requested


@click.group("access")
def command() -> None:
    """Explain which access rule applies."""


@command.command("explain", short_help="Explain which access rule decides.")
@click.argument("principal")
@click.argument("operation", type=click.Choice([each.value for each in Operation]))
@click.argument("topic", required=False)
@click.option("--group", metavar="GROUP", help="Ask about a consumer group instead of a topic.")
@click.option("--transactional-id", metavar="ID", help="Or about a transactional id.")
@click.option(
    "--member-of",
    "user_groups",
    multiple=True,
    metavar="GROUP",
    help="A group of users that PRINCIPAL is in, beside those of `users_file`. Repeatable.",
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default="broker.yaml",
    show_default=True,
    metavar="FILE",
    help="The broker.yaml with the rules.",
)
@JSON_OPTION
def explain(
    principal: str,
    operation: str,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    user_groups: tuple[str, ...],
    path: Path,
    as_json: bool,
) -> None:
    """Say whether PRINCIPAL may do OPERATION to TOPIC, and which rule of broker.yaml decides.

    With neither TOPIC nor --group nor --transactional-id it is about the cluster. Reads the file,
    and the ACLs in its log_dir, and asks no broker: a running one has read the file after
    `hermes config reload`. Examples: hermes access explain alice produce clicks;
    hermes access explain alice group --group etl; hermes access explain ops admin
    """
    if len([each for each in (topic, group, transactional_id) if each is not None]) > 1:
        raise click.UsageError("give TOPIC, --group or --transactional-id, one of them")
    resource = CLUSTER
    if topic is not None:
        resource = Resource.topic(topic)
    elif group is not None:
        resource = Resource.group(group)
    elif transactional_id is not None:
        resource = Resource.transaction(transactional_id)
    wanted = Operation(operation)
    if wanted not in OPERATIONS_ON[resource.kind]:
        raise click.UsageError(
            f"{wanted} is not done to the cluster: name a topic or a --group"
            if resource is CLUSTER
            else f"{wanted} is not done to a {resource.kind}"
        )
    config = _with_requested(load_broker_config(path))
    source = f"{path} and ACLs" if config.requested.rules else str(path)
    groups = frozenset(user_groups) | _groups_of(config, principal)
    decision, reason = explain_decision(config.rules, source, principal, groups, wanted, resource)
    if as_json:
        write_json(_as_json(config, decision, reason))
        return
    verdict = "allowed" if decision.allowed else "refused"
    can = "may" if decision.allowed else "may not"
    write_line(f"{verdict}: {quoted(principal)} {can} {action_text(wanted, resource)}: {reason}")


def _with_requested(config: BrokerConfig) -> BrokerConfig:
    """With the ACLs that Kafka's clients have made, as the data directory has them."""
    try:
        data = read_requested(str(config.log_dir), FileLayer())
        return replace(config, requested=Requested.decode(data or b""))
    except (OSError, StorageError, ConfigError) as error:
        note(f"without the ACLs of {config.log_dir}: {error}")
        return config


def _groups_of(config: BrokerConfig, principal: str) -> frozenset[str]:
    is_asked = any(rule.principal.startswith("group:") for rule in config.rules or ())
    if config.users_file is None or not is_asked:
        return frozenset()
    from hermes.security.users_file import read_users  # few brokers have users

    try:
        users, _ = read_users(config.users_file)
    except ConfigError as error:
        note(f"{error}; name the groups of {quoted(principal)} by --member-of")
        return frozenset()
    return users.groups(principal)


def _as_json(config: BrokerConfig, decision: AccessDecision, reason: str) -> dict[str, Any]:
    rule = decision.rule
    return {
        "allowed": decision.allowed,
        "reason": reason,
        "number": None if rule is None else (config.rules or ()).index(rule) + 1,
        "rule": None if rule is None else rule.as_given(),
    }
