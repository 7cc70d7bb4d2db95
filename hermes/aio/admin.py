"""What operators ask of a broker, for event loops: `hermes.client.admin`, awaited."""

from hermes.aio.channel import AsyncChannel
from hermes.client import admin
from hermes.protocol import (
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    LogLines,
    PartitionDescription,
    RecentLogLinesRequest,
    SettingDescription,
)


class AsyncAdministration:
    """The part of an asynchronous consumer that operators use."""

    _channel: AsyncChannel

    async def describe_settings(self, topic: str | None = None) -> list[SettingDescription]:
        """See `hermes.SimpleConsumer.describe_settings`."""
        await self._channel.require(DescribeSettingsRequest.TYPE, "describing settings")
        return await self._channel.run(admin.describe_settings(topic))

    async def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """See `hermes.SimpleConsumer.describe_partitions`."""
        await self._channel.require(DescribePartitionsRequest.TYPE, "describing partitions")
        return await self._channel.run(admin.describe_partitions(topic))

    async def recent_log_lines(self, first: int | None = None, max_lines: int = 100) -> LogLines:
        """See `hermes.SimpleConsumer.recent_log_lines`."""
        await self._channel.require(RecentLogLinesRequest.TYPE, "reading the log")
        return await self._channel.run(admin.recent_log_lines(first, max_lines))
