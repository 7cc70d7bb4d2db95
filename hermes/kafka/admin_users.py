"""DescribeUserScramCredentials and AlterUserScramCredentials: users, as Kafka's clients know them.

A client sends what a password was salted to, never the password. In a cluster whose coordination
keeps such things to itself users are made there, for all brokers; those of this broker's file are
shown, and change there. Elsewhere they are those of the file.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hermes.config.broker import USERS_FILE
from hermes.errors import ConfigError, HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code, KafkaError, code_of, invalid_request
from hermes.quoting import quoted

if TYPE_CHECKING:
    from hermes.cluster.user_changes import UserChanges
    from hermes.security.users import Users

#: By Kafka's numbers.
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS: Final = {name: number for number, name in _MECHANISMS.items()}

#: Kafka's bounds of iterations.
_LEAST, _MOST = 4096, 16384

#: A request may alter so many users: each is a line of the file, which is written as a whole.
_MOST_ALTERED: Final = 1000


def _file(call: Call) -> Path | None:
    """The users file; KafkaError if the client may not know of users, or a plugin has them."""
    call.check_admin()
    config = call.server.shared.config
    if config.authenticator != USERS_FILE:
        raise invalid_request(f"Users are those of the authenticator {config.authenticator}.")
    return config.users_file


# -- DescribeUserScramCredentials ---------------------------------------------------------------


async def describe_users(request: Any, call: Call) -> Any:
    make = call.make
    by_name: dict[str, Sequence[Any]] = {}
    try:
        path = _file(call)
        if path is not None:
            by_name = await call.server.look_up(_verifiers, path, call.server.users)
    except HermesError as error:
        code = Code.KAFKA_STORAGE_ERROR if isinstance(error, ConfigError) else code_of(error)
        return make.DescribeUserScramCredentialsResponse(
            error_code=code, error_message=str(error), results=()
        )
    asked = Counter(each.name for each in request.users or ())
    wanted = asked or Counter(name for name, found in by_name.items() if found)
    call.is_large = len(wanted) > LARGE_ENTRIES
    results = []
    for name, times in wanted.items():
        await call.after_entry()
        code, text = Code.NONE, None
        if times > 1:
            code, text = Code.DUPLICATE_RESOURCE, "Cannot describe SCRAM credentials for the same "
            text += f"user twice in a single request: {quoted(name)}"
        elif not by_name.get(name):
            code, text = Code.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does "
            text += f"not exist: {quoted(name)}"
        infos = by_name.get(name, ()) if code is Code.NONE else ()
        results.append(
            make.DescribeUserScramCredentialsResult(
                user=name,
                error_code=code,
                error_message=text,
                credential_infos=tuple(
                    make.CredentialInfo(
                        mechanism=_NUMBERS[each.mechanism], iterations=each.iterations
                    )
                    for each in infos
                ),
            )
        )
    return make.DescribeUserScramCredentialsResponse(
        error_code=Code.NONE, error_message=None, results=tuple(results)
    )


def _verifiers(path: Path, cluster: "UserChanges | None") -> dict[str, Sequence[Any]]:
    from hermes.security.users_file import read_users  # few brokers have users

    users = read_users(path)[0] if cluster is None else cluster.users.current()
    return {name: user.verifiers for name, user in users.by_name.items()}


# -- AlterUserScramCredentials ------------------------------------------------------------------


async def alter_users(request: Any, call: Call) -> Any:
    make = call.make
    changes = [*request.deletions, *request.upsertions]
    counts = Counter(each.name for each in changes)
    call.is_large = len(counts) > LARGE_ENTRIES
    faults: dict[str, KafkaError] = {}
    try:
        path = _file(call)
        if path is None:
            raise invalid_request("This broker has no users_file.")
        if len(changes) > _MOST_ALTERED:
            raise invalid_request(f"More than {_MOST_ALTERED} users.")
        for number, each in enumerate(changes):
            await call.after_entry()
            fault = _fault_of(each, is_deletion=number < len(request.deletions))
            if counts[each.name] > 1:
                fault = KafkaError(
                    Code.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if fault is not None:
                faults[each.name] = fault
        good = [each for each in changes if each.name not in faults]
        if good and call.server.users is not None:
            faults |= await _change_cluster(call.server.users, good, call)
        elif good:
            faults |= await call.server.in_thread(_change_file, path, good)
            done = [quoted(each.name) for each in good if each.name not in faults]
            if done:
                call.server.shared.lines.info(
                    "users",
                    "{client} changed the passwords of {users}",
                    client=call.client,
                    users=", ".join(done[:3]) + (" and others" if len(done) > 3 else ""),
                )
    except HermesError as error:
        code = Code.KAFKA_STORAGE_ERROR if isinstance(error, ConfigError) else code_of(error)
        faults = {name: KafkaError(code, str(error)) for name in counts} | faults
    return make.AlterUserScramCredentialsResponse(
        results=tuple(
            make.AlterUserScramCredentialsResult(
                user=name,
                error_code=faults[name].code if name in faults else Code.NONE,
                error_message=str(faults[name]) if name in faults else None,
            )
            for name in counts
        )
    )


def _fault_of(asked: Any, *, is_deletion: bool) -> KafkaError | None:
    """What is wrong with a change, in Kafka's words; whether there is such a user comes later."""
    from hermes.security.passwords import KEY_BYTES, LEAST_SALT_BYTES, MOST_SALT_BYTES

    mechanism, text = _MECHANISMS.get(asked.mechanism), ""
    if not asked.name:
        text = "Username must not be empty"
    elif mechanism is None:
        return KafkaError(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    elif is_deletion:
        return None
    elif asked.iterations < _LEAST:
        text = "Too few iterations"
    elif asked.iterations > _MOST:
        text = "Too many iterations"
    elif not LEAST_SALT_BYTES <= len(asked.salt) <= MOST_SALT_BYTES:
        text = f"A salt has {LEAST_SALT_BYTES} to {MOST_SALT_BYTES} bytes"
    elif len(asked.salted_password) != KEY_BYTES[mechanism]:
        text = f"A salted password of {mechanism} has {KEY_BYTES[mechanism]} bytes"
    return KafkaError(Code.UNACCEPTABLE_CREDENTIAL, text) if text else None


def _change_file(path: Path, changes: Sequence[Any]) -> dict[str, KafkaError]:
    """In a thread: change the users file; what is wrong, by users."""
    from hermes.security.users_file import change_users_file

    faults: dict[str, KafkaError] = {}
    change_users_file(path, lambda users: _with_changes(users, changes, faults))
    return faults


async def _change_cluster(
    cluster: "UserChanges", changes: Sequence[Any], call: Call
) -> dict[str, KafkaError]:
    own = await call.server.look_up(cluster.users.file.current)
    text = "It is a user of this broker's users_file, which wins here: change it there."
    refused = {
        each.name: invalid_request(text) for each in changes if own.find(each.name) is not None
    }
    left = [each for each in changes if each.name not in refused]
    faults: dict[str, KafkaError] = {}
    if left:
        try:
            await cluster.change(lambda users: _with_changes(users, left, faults))
        except ConfigError as error:
            raise KafkaError(Code.POLICY_VIOLATION, error.message) from None
    return refused | faults


def _with_changes(users: "Users", changes: Sequence[Any], faults: dict[str, KafkaError]) -> "Users":
    """Change users, as far as that can be done; `faults` gets the rest."""
    from hermes.security.passwords import verifier_of_salted

    faults.clear()  # others were quicker, and this is another try
    for each in changes:
        mechanism = _MECHANISMS[each.mechanism]
        try:
            if hasattr(each, "salt"):
                made = verifier_of_salted(
                    mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password)
                )
                users = users.with_verifier(each.name, made)
            else:
                users = users.without_verifier(each.name, mechanism)
        except ConfigError as error:
            is_missing = not hasattr(each, "salt")
            code = Code.RESOURCE_NOT_FOUND if is_missing else Code.UNACCEPTABLE_CREDENTIAL
            faults[each.name] = KafkaError(code, error.message)
    return users
