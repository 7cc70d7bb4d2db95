"""What operators ask of a broker, for event loops: `hermes.client.admin`, awaited."""

from collections.abc import Iterable, Mapping

from hermes.aio.channel import AsyncChannel
from hermes.client import admin
from hermes.client.conversations import cluster_brokers, cluster_id
from hermes.protocol import (
    AlterTopicRequest,
    ClusterBroker,
    ClusterBrokersRequest,
    ClusterIdRequest,
    CreateTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    LogLines,
    PartitionDescription,
    RecentLogLinesRequest,
    ReloadConfigRequest,
    SettingDescription,
)


class AsyncAdministration:
    """The part of an asynchronous consumer that operators use; see `hermes.SimpleConsumer`."""

    _channel: AsyncChannel

    async def create_topic(self, topic: str, settings: Mapping[str, object] | None = None) -> None:
        await self._channel.require(CreateTopicRequest.TYPE, "creating a topic")
        await self._channel.run(admin.create_topic(topic, settings or {}))

    async def alter_topic(
        self,
        topic: str,
        settings: Mapping[str, object] | None = None,
        reset: Iterable[str] | None = (),
    ) -> None:
        await self._channel.require(AlterTopicRequest.TYPE, "altering a topic")
        await self._channel.run(admin.alter_topic(topic, settings or {}, reset))

    async def reload_config(self) -> admin.ReloadedConfig:
        await self._channel.require(ReloadConfigRequest.TYPE, "reading broker.yaml again")
        return await self._channel.run(admin.reload_config())

    async def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        await self._channel.require(DescribeSettingsRequest.TYPE, "describing settings")
        return await self._channel.run(admin.describe_settings(topic))

    async def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        await self._channel.require(DescribePartitionsRequest.TYPE, "describing partitions")
        return await self._channel.run(admin.describe_partitions(topic))

    async def cluster_id(self) -> str:
        await self._channel.require(ClusterIdRequest.TYPE, "telling the cluster's id")
        return await self._channel.run(cluster_id())

    async def brokers(self) -> list[ClusterBroker]:
        await self._channel.require(ClusterBrokersRequest.TYPE, "telling the cluster's brokers")
        return await self._channel.run(cluster_brokers())

    async def recent_log_lines(self, first: int | None = None, max_lines: int = 100) -> LogLines:
        await self._channel.require(RecentLogLinesRequest.TYPE, "reading the log")
        return await self._channel.run(admin.recent_log_lines(first, max_lines))
