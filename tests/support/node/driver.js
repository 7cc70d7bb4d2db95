// kafkajs, driven by a test as KafkaDriver.java is: a line of JSON in, lines of JSON out. Bytes are base64.
// Of its own it has gzip only: the other codecs are other packages'.

import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";
import lz4 from "lz4-napi";
import { createInterface } from "node:readline";
import { ZstdCodec } from "zstd-codec";

const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs;
const PATIENCE_MS = 60_000;
const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 };

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
const zstd = await new Promise((resolve) => ZstdCodec.run((module) => resolve(new module.Streaming())));
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const members = new Map();

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const encoded = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString("base64"));
const decoded = (text) => (text === null || text === undefined ? null : Buffer.from(text, "base64"));

const client = (asked) =>
  new Kafka({ brokers: asked.settings["bootstrap.servers"].split(","), clientId: "kafkajs", logLevel: logLevel.NOTHING });

function message(asked) {
  const headers = {};
  for (const [name, value] of asked.headers) {
    (headers[name] ??= []).push(decoded(value));
  }
  const made = { key: decoded(asked.key), value: decoded(asked.value), headers };
  if (asked.timestamp !== null && asked.timestamp !== undefined) made.timestamp = String(asked.timestamp);
  if (asked.partition !== null && asked.partition !== undefined) made.partition = asked.partition;
  return made;
}

function shown(topic, partition, message) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => [name, encoded(each)]),
  );
  return {
    ...{ topic, partition, headers, offset: Number(message.offset), timestamp: Number(message.timestamp) },
    ...{ key: encoded(message.key), value: encoded(message.value) },
  };
}

async function produce(asked) {
  const idempotent = asked.settings["enable.idempotence"] === "true";
  const more = idempotent ? { idempotent, maxInFlightRequests: 1 } : {};
  const producer = client(asked).producer({ createPartitioner: Partitioners.DefaultPartitioner, ...more });
  await producer.connect();
  const placed = [];
  try {
    // All that it is given at once it sends as one batch, however large that is.
    for (const each of asked.records) {
      const compression = CODECS[asked.settings["compression.type"] ?? "none"];
      const [place] = await producer.send({ topic: asked.topic, compression, messages: [message(each)] });
      placed.push([place.partition, Number(place.baseOffset)]);
    }
  } finally {
    await producer.disconnect();
  }
  return { placed };
}

class Member {
  constructor(asked) {
    const settings = asked.settings;
    const more = {};
    if (settings["session.timeout.ms"]) {
      more.sessionTimeout = Number(settings["session.timeout.ms"]);
      more.heartbeatInterval = more.sessionTimeout / 6;
    }
    this.topics = asked.topics;
    this.records = [];
    this.assigned = [];
    this.ends = new Map();
    this.consumer = client(asked).consumer({ groupId: settings["group.id"], ...more });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.ends.clear();
      this.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, numbers]) =>
        numbers.map((number) => `${topic}-${number}`),
      );
    });
    this.consumer.on(this.consumer.events.REBALANCING, () => (this.assigned = []));
    this.consumer.on(this.consumer.events.CRASH, ({ payload }) => (this.failure = payload.error));
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: this.topics, fromBeginning: true });
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        this.records.push(shown(topic, partition, message));
        this.ends.set(`${topic} ${partition}`, String(Number(message.offset) + 1));
      },
    });
  }

  take() {
    const records = this.records;
    this.records = [];
    for (const record of records) say({ record });
    return records.length;
  }

  async commit() {
    const offsets = [...this.ends].map(([place, offset]) => {
      const [topic, partition] = place.split(" ");
      return { topic, partition: Number(partition), offset };
    });
    await this.consumer.commitOffsets(offsets);
  }
}

async function read(asked) {
  // It reads in groups only.
  const group = `reads-${process.pid}-${Date.now()}`;
  const member = new Member({ ...asked, settings: { ...asked.settings, "group.id": group } });
  await member.start();
  const end = Date.now() + PATIENCE_MS;
  for (let count = 0; count < asked.count && Date.now() < end; await pause(20)) count += member.take();
  await member.consumer.disconnect();
  return {};
}

async function administer(asked) {
  const kafka = client(asked);
  const admin = kafka.admin();
  await admin.connect();
  try {
    const { topic } = asked;
    const groupId = asked.settings["group.id"];
    const found = {};
    const configEntries = [{ name: "retention.ms", value: "86400000" }];
    const topics = [{ topic, numPartitions: 2, replicationFactor: 1, configEntries }];
    await admin.createTopics({ topics });
    found.again = (await admin.createTopics({ topics })) ? "" : "TOPIC_ALREADY_EXISTS";
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    found.partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length;
    const resource = { type: 2, name: topic };
    const altered = [{ ...resource, configEntries: [{ name: "retention.ms", value: "3600000" }] }];
    await admin.alterConfigs({ validateOnly: false, resources: altered });
    const asksFor = [{ ...resource, configNames: ["retention.ms"] }];
    const configs = await admin.describeConfigs({ includeSynonyms: false, resources: asksFor });
    found["retention.ms"] = configs.resources[0].configEntries[0].configValue;
    const record = { key: null, value: encoded("x"), headers: [], partition: 0 };
    await produce({ ...asked, records: [record, record, record] });
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "2" }] });
    const ends = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === 0);
    found.offsets = [Number(ends.low), Number(ends.high)];
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "2" }] });
    const committed = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions;
    found.committed = Number(committed.find((each) => each.partition === 0).offset);
    found.listed = (await admin.listGroups()).groups.some((each) => each.groupId === groupId);
    found.state = (await admin.describeGroups([groupId])).groups[0].state;
    found.brokers = (await admin.describeCluster()).brokers.length;
    await admin.deleteGroups([groupId]);
    await admin.deleteTopics({ topics: [topic] });
    return found;
  } finally {
    await admin.disconnect();
  }
}

async function carryOut(asked) {
  const member = members.get(asked.consumer);
  switch (asked.do) {
    case "produce":
      return await produce(asked);
    case "read":
      return await read(asked);
    case "join": {
      const joined = new Member(asked);
      members.set(asked.consumer, joined);
      await joined.start();
      return {};
    }
    case "poll":
      await pause(asked.seconds * 1000);
      if (member.failure && !member.failure.retriable) throw member.failure;
      member.take();
      return { assigned: member.assigned };
    case "commit":
      await member.commit();
      return {};
    case "close":
      await member.consumer.disconnect();
      return {};
    case "admin":
      return await administer(asked);
  }
  throw new Error(`what is ${JSON.stringify(asked)}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    say(await carryOut(JSON.parse(line)));
  } catch (error) {
    say({ error: String(error) });
  }
}
process.exit(0);
