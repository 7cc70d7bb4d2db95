"""Who may do what: asks the authorizer (access rules, or a plugin), and caches its answers.

Knows no request: `refusals` says what each of them needs, and how a refusal is told. HTTP and
embedded coordination ask here, too.
"""

from collections.abc import Callable
from typing import Final

from hermes.interfaces import IAuthorizer
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.security import (
    INTERNAL,
    LONGEST_NAME,
    AccessRules,
    Operation,
    Resource,
    ResourceKind,
)
from hermes.server.checks import authorizer_of
from hermes.server.clients import Client
from hermes.server.settings import Settings

#: How many answers are remembered: some 5 MB with the longest names.
_MOST_KNOWN: Final = 16_384

_TOPIC: Final = ResourceKind.TOPIC
_NO_GROUPS: Final[frozenset[str]] = frozenset()

_Known = dict[tuple[str, frozenset[str], str, str, str], bool]


class _Judge:
    """An authorizer, and what it has said in its present revision."""

    __slots__ = ("authorizer", "known", "revision")

    def __init__(self, authorizer: IAuthorizer) -> None:
        self.authorizer = authorizer
        self.known: _Known = {}
        self.revision: object = None


class Authorization:
    """Says who may do what. Any thread may ask; it is made and changed in the reactor's thread.

    `is_on` is False without rules and another authorizer: whoever connects may do everything.
    """

    def __init__(self, settings: Settings, seconds: Callable[[], float]) -> None:
        self._settings = settings
        self._log = LimitedLog(ModuleLogger(), seconds)
        self.groups_of: Callable[[str], frozenset[str]] = lambda principal: _NO_GROUPS
        self._used: object = None  # what the authorizer was made from
        # Replaced as one: a thread that asks the former one notes that where nobody looks any more.
        self._judge: _Judge | None = None
        self._rules: AccessRules | None = None
        self.is_on = False
        self._settings_changed()
        settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        config = self._settings.config
        used = (config.rules, config.authorizer, config.authorizer_options)
        if used != self._used:
            self._used = used
            authorizer = authorizer_of(config)
            self._judge = None if authorizer is None else _Judge(authorizer)
            self._rules = None if config.rules is None else AccessRules(config.rules)
            self.is_on = authorizer is not None

    def may(
        self,
        principal: str,
        operation: Operation,
        resource: Resource,
        groups: frozenset[str] | None = None,
    ) -> bool:
        """Whether `principal` may do it; quick. `groups` None: they are looked up."""
        judge = self._judge
        if judge is None or principal == INTERNAL:
            return True
        if groups is None:
            groups = self.groups_of(principal)
        kind, name = resource
        try:
            revision = judge.authorizer.revision()
            if revision != judge.revision:
                judge.known, judge.revision = {}, revision
            known = judge.known
            key = (principal, groups, operation, kind, name)
            answer = known.get(key)
            if answer is None:
                if len(name) > LONGEST_NAME:  # nothing can be called so
                    return False
                answer = judge.authorizer.is_allowed(*key) is True
                if len(known) >= _MOST_KNOWN:
                    judge.known = known = {}
                known[key] = answer
        except Exception as error:  # whatever a plugin raises: in doubt it allows nothing
            self._log.error(
                "authorizer",
                "the authorizer {name} failed, so that {principal} is refused: {error}",
                name=self._settings.config.authorizer,
                principal=principal,
                error=f"{type(error).__name__}: {error}",
            )
            return False
        return answer

    def stamp(self, principal: str) -> object:
        """A value that is equal as long as cached answers about `principal` hold."""
        judge = self._judge
        if judge is None:
            return None
        try:
            revision = judge.authorizer.revision()
        except Exception:  # whatever a plugin raises: `may` logs it
            return object()
        return judge.authorizer, revision, self.groups_of(principal)

    def permits_topic(self, client: Client, operation: Operation, name: str) -> bool:
        judge = self._judge
        if judge is not None:
            try:
                known = judge.known if judge.authorizer.revision() == judge.revision else {}
            except Exception:  # whatever a plugin raises: `may` logs it
                known = {}
            answer = known.get((client.principal, client.groups, operation, _TOPIC, name))
            if answer is not None:
                return answer
        return self.may(client.principal, operation, Resource(_TOPIC, name), client.groups)

    def permits(self, client: Client, operation: Operation, resource: Resource) -> bool:
        return self.may(client.principal, operation, resource, client.groups)

    def belongs(self, client: Client) -> bool:
        """Whether any rule allows a client anything; if not, it isn't told where others are.

        True with an authorizer plugin, which has no such question.
        """
        return self._rules is None or self._rules.may_anything(client.principal, client.groups)
