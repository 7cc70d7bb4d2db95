"""Changes while the broker runs: topics are created and altered, broker.yaml is read again.

    create, alter    checked -> the entries are on disk -> in force -> answered
    forget           the same, when a topic was deleted
    reload           read and checked in a thread -> in force -> what has changed, what can't

One change is made at a time. Whatever is refused has changed nothing. What was set for a topic here
is an *entry*: it wins over broker.yaml, and is kept in the data directory.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from hermes.cluster.gathering import Gathered
from hermes.cluster.shared import Shared
from hermes.config.broker import BrokerConfig
from hermes.config.loading import parse_topic_settings
from hermes.config.reloading import SettingChange, changes_between, reloaded
from hermes.config.topic import TOPIC_SETTINGS, UNSET, TopicConfig, check_format, check_untrimmed
from hermes.errors import BrokerStoppingError, ConfigError, HermesError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.plugins import PluginMakers
from hermes.protocol import (
    AlterTopicRequest,
    check_topic_name,
)
from hermes.quoting import quoted
from hermes.server.checks import retention_policy
from hermes.server.clients import Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import settled
from hermes.storage import TopicEntries

#: How much of what was changed one line shows, in characters.
_SHOWN_LENGTH = 2000

#: How long the names and values of one topic's settings may be together, in characters.
_MAX_LENGTH = 8192

#: For how many topics what the cluster has is used together.
_MOST_TOGETHER = 20

_PARTITIONS = "partitions"
_FORMAT = "format"

#: A topic, and what is to be set for it.
_Wanted = tuple[str, Mapping[str, str]]


class SettingChanges:
    """Makes changes, whose Deferreds fail with HermesError. Lives in the reactor's thread."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._settings = shared.settings
        self._topics = shared.topics
        self._one_at_a_time = DeferredLock()
        self._wanted = Gathered[_Wanted](self._use_wanted, _MOST_TOGETHER)
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds, _SHOWN_LENGTH)

    # -- topics ---------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, texts: Mapping[str, str], client: Client
    ) -> "Deferred[None]":
        """Fires when the topic exists. Its settings are as broker.yaml would have them."""

        def check() -> None:
            check_topic_name(topic)
            _check_length(texts)

        return self._made(check, self._create, topic, texts, client)

    async def _create(self, topic: str, texts: Mapping[str, str], client: Client) -> None:
        before, entries = self._settings.config, self._settings.entries
        config = self._with_entry(topic, parse_topic_settings(texts))
        self._topics.check_new(topic, config.topic(topic).partitions)
        # Whatever new topics get later, this one has its format also before it has any file.
        texts = {_FORMAT: f"'{config.topic(topic).format}'", **texts}
        config = self._with_entry(topic, parse_topic_settings(texts))
        await self._use_entries({**entries, topic: texts}, [topic], config)
        try:
            self._topics.create(topic)
        except HermesError:
            await self._use_entries(entries, [topic], before)
            raise
        self._log.info(
            "created",
            "created topic {topic} ({count} partitions) for {client}",
            topic=topic,
            count=self._topics.partition_count(topic),
            client=client,
        )

    def alter_topic(self, request: AlterTopicRequest, client: Client) -> "Deferred[None]":
        def check() -> None:
            check_topic_name(request.topic)
            _check_length(dict(request.settings))
            for name in request.reset or ():
                if name not in TOPIC_SETTINGS:
                    raise ConfigError(quoted(name), "there is no such setting of a topic")

        return self._made(check, self._alter, request, client)

    async def _alter(self, request: AlterTopicRequest, client: Client) -> None:
        topic, entries = request.topic, self._settings.entries
        texts, config = self._altered(request)
        await self._use_entries({**entries, topic: texts}, [topic], config)
        self._log.info(
            "altered",
            "altered topic {topic}: {settings} for {client}",
            topic=topic,
            settings=", ".join(f"{key}: {value}" for key, value in texts.items()) or "all reset",
            client=client,
        )

    def _altered(self, request: AlterTopicRequest) -> tuple[dict[str, str], BrokerConfig]:
        topic, given = request.topic, dict(request.settings)
        entries = self._settings.entries
        texts = {
            key: value
            for key, value in entries.get(topic, {}).items()
            if not _is_reset(key, request)
        }
        texts.update(given)
        _check_length(texts)
        entry = parse_topic_settings(texts)
        config = self._with_entry(topic, entry)
        if entry.format is not UNSET:
            self._topics.check_format(topic, entry.format)
        count = config.topic(topic).partitions
        is_counted = _PARTITIONS in given or _PARTITIONS in (request.reset or ())
        self._topics.check_existing(topic, count, is_wanted=is_counted)
        return texts, config

    async def forget(self, topics: Collection[str]) -> None:
        """Drop what was set for topics that were deleted; StorageError if the disk refuses."""
        if not self._settings.entries.keys().isdisjoint(topics) or self._one_at_a_time.locked:
            async with self._one_at_a_time:
                entries = dict(self._settings.entries)
                found = [each for each in topics if entries.pop(each, None) is not None]
                if found:
                    config = self._settings.config
                    altered = {k: v for k, v in config.altered.items() if k not in found}
                    await self._use_entries(entries, found, config.with_altered(altered))

    def check_new_topic(self, topic: str, texts: Mapping[str, str]) -> None:
        """Refuse what `create_topic` would refuse, and change nothing."""
        check_topic_name(topic)
        _check_length(texts)
        config = self._with_entry(topic, parse_topic_settings(texts))
        self._topics.check_new(topic, config.topic(topic).partitions)

    def check_settings(self, topic: str, texts: Mapping[str, str]) -> None:
        _check_length(texts)
        self._with_entry(topic, parse_topic_settings(texts))

    def use_settings(self, topic: str, texts: Mapping[str, str]) -> "Deferred[None]":
        """Have exactly this be set for a topic, whether or not it exists here."""
        return self._wanted.add((topic, texts))

    async def _use_wanted(self, wanted: Sequence[_Wanted]) -> Sequence[Failure | None]:
        """The same for some topics together: each write of the entries writes all of them."""
        results: list[Failure | None] = []

        async def use() -> None:
            entries, config = dict(self._settings.entries), self._settings.config
            changed: list[str] = []
            for topic, texts in wanted:
                await self._turn()
                try:
                    _check_length(texts)
                    if entries.get(topic) != texts:
                        config = self._with_entry(topic, parse_topic_settings(texts), config)
                        entries[topic] = dict(texts)
                        changed.append(topic)
                    results.append(None)
                except HermesError:
                    results.append(Failure())  # type: ignore[no-untyped-call]
            if changed:
                await self._use_entries(entries, changed, config)

        await self._made(lambda: None, use)
        return results

    def check_alter(self, request: AlterTopicRequest) -> None:
        """Refuse what `alter_topic` would refuse, and change nothing."""
        self._altered(request)

    def _with_entry(
        self, topic: str, entry: TopicConfig | None, config: BrokerConfig | None = None
    ) -> BrokerConfig:
        """The settings, those in force unless given, with a topic's entry, or without one.

        Raises ConfigError: the topic can't have such a retention policy.
        """
        config = self._settings.config if config is None else config
        altered = dict(config.altered)
        altered.pop(topic, None)
        if entry is None:
            return config.with_altered(altered)
        check_untrimmed(topic, entry)
        changed = config.with_altered({**altered, topic: entry})
        settings = changed.topic(topic)
        if self._topics.exists(topic):  # it has its format, perhaps without an entry
            settings = replace(settings, format=self._topics.format(topic))
        check_format(entry, settings)
        try:
            retention_policy(changed, topic, self._settings.policy_makers)
        except ConfigError as error:
            raise ConfigError("retention_policy", error.message) from None
        return changed

    async def _use_entries(
        self, entries: TopicEntries, topics: Collection[str], config: BrokerConfig
    ) -> None:
        """Put entries on disk, then the settings with them in force; those of `topics` differ."""
        shared = self._shared
        await shared.in_thread(shared.directory.write_entries, entries)
        self._settings.entries = entries
        self._settings.config = replace(config, requested=self._settings.config.requested)
        for topic in topics:
            self._settings.notify_topic(topic)

    # -- broker.yaml ----------------------------------------------------------------------------

    def reload(self, cause: str) -> "Deferred[Sequence[SettingChange]]":
        """Read broker.yaml again for a cause that is logged; what has changed, and what can't."""
        return self._made(lambda: None, self._reload, cause)

    def reload_now(self, cause: str) -> "Deferred[None]":
        """The same when nobody waits for the outcome: a refusal is only logged."""

        async def reload() -> None:
            async with self._one_at_a_time:
                await self._reload(cause)

        done: Deferred[None] = Deferred.fromCoroutine(reload())
        return done.addErrback(_logged)

    async def _reload(self, cause: str) -> Sequence[SettingChange]:
        shared, settings = self._shared, self._settings
        try:
            running = settings.config
            read: tuple[BrokerConfig, list[SettingChange]] = await shared.in_thread(
                self._read, running
            )
        except HermesError as error:
            self._log.error(
                "refused reload",  # must not use up what a reload that succeeds may log
                "broker.yaml is not read again, nothing has changed: {error} (for {cause})",
                error=error,
                cause=cause,
            )
            raise
        config, changes = read
        settings.use(replace(config, requested=settings.config.requested))
        topics = self._topics
        concerned = self._concerned(running, config)
        await settled(cooperatively(shared.scheduler, concerned, settings.notify_topic))
        created = cooperatively(shared.scheduler, topics.missing(), topics.create_declared)
        topics.report_declared(await settled(created))
        self._report(changes, cause)
        return changes

    def _read(self, running: BrokerConfig) -> tuple[BrokerConfig, list[SettingChange]]:
        read = self._shared.read_config()
        config = reloaded(running, read)
        makers: PluginMakers = {}  # plugins may have been installed meanwhile
        for topic in config.altered:
            retention_policy(config, topic, makers)
        return config, list(changes_between(running, read))

    def _concerned(self, before: BrokerConfig, now: BrokerConfig) -> list[str]:
        """The topics whose settings may have changed: all, if any setting of the broker has."""
        if replace(before, topics={}) != replace(now, topics={}):
            return self._topics.names()
        listed = before.topics.keys() | now.topics.keys()
        return sorted(each for each in listed if before.topics.get(each) != now.topics.get(each))

    def _report(self, changes: Sequence[SettingChange], cause: str) -> None:
        made = [f"{each.name}: {each.before} -> {each.after}" for each in changes if not each[3]]
        self._log.info(
            "reload",
            "broker.yaml was read again for {cause}; changed: {changes}",
            cause=cause,
            changes=", ".join(made) or "nothing",
        )
        left = [f"{each.name}: {each.after} ({each.left_because})" for each in changes if each[3]]
        if left:
            self._log.warn("left", "left as it was: {changes}", changes=", ".join(left))

    # -- both -----------------------------------------------------------------------------------

    def _made(
        self, check: Callable[[], None], change: Callable[..., Any], *args: Any
    ) -> "Deferred[Any]":
        """Make a change when no other is made."""
        # `check` refuses at once what must not wait, being large: there may be thousands. It takes
        # no time, either: they arrive in turns of others.

        async def make() -> Any:
            check()
            async with self._one_at_a_time:
                await self._turn()
                if self._topics.stopping:  # thousands may be waiting
                    raise BrokerStoppingError("the broker is stopping")
                return await change(*args)

        return Deferred.fromCoroutine(make())

    def _turn(self) -> "Deferred[None]":
        """Fires when this change may begin.

        The one before it has just ended, and a thousand more may wait that are refused at once.
        """
        turn: Deferred[None] = Deferred()
        self._shared.scheduler.resume_later(lambda: turn.callback(None))
        return turn


def _check_length(texts: Mapping[str, str]) -> None:
    length = sum(len(key) + len(value) for key, value in texts.items())
    if length > _MAX_LENGTH:
        raise ConfigError(
            "settings", f"{length} characters for one topic are too many: at most {_MAX_LENGTH}"
        )


def _is_reset(key: str, request: AlterTopicRequest) -> bool:
    if request.reset is None:  # all that can be: a topic never loses partitions or its format
        return key not in (_PARTITIONS, _FORMAT)
    return key in request.reset


def _logged(failure: Failure) -> None:
    """A refusal has its line already."""
    failure.trap(HermesError)  # type: ignore[no-untyped-call]
