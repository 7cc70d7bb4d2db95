import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What pages of kafbat's kafka-ui and of AKHQ ask a cluster for, by their sources, in the order of somebody who goes
 * through them: one line of JSON that says for each page what it would show, or the error.
 *
 * Arguments: the console, the client's settings as a text of properties, a topic with messages, a group without members
 * that has committed there, and how many copies a topic can have.
 */
public class Consoles {
    interface Page {
        Object shown() throws Exception;
    }

    static final Map<String, Object> SHOWN = new TreeMap<>();
    static final Properties SETTINGS = new Properties();
    static Admin admin;
    static String topic;
    static String group;
    static int copies;

    public static void main(String[] arguments) throws Exception {
        SETTINGS.load(new StringReader(arguments[1]));
        topic = arguments[2];
        group = arguments[3];
        copies = Integer.parseInt(arguments[4]);
        try (Admin opened = Admin.create(SETTINGS)) {
            admin = opened;
            if (arguments[0].equals("kafka-ui")) {
                kafkaUi();
            } else {
                akhq();
            }
        }
        System.out.println(new ObjectMapper().writeValueAsString(SHOWN));
    }

    static void page(String name, Page page) throws InterruptedException {
        try {
            SHOWN.put(name, page.shown());
        } catch (InterruptedException error) {
            throw error;
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            SHOWN.put(name, Map.of("error", cause.getClass().getSimpleName(), "text", String.valueOf(cause.getMessage())));
        }
    }

    /** Look until something is so: who asks another broker next may be ahead of it, as pages are not. */
    static Object until(Object wanted, Page page) throws Exception {
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        Object found = null;
        while (System.nanoTime() < end && !wanted.equals(found)) {
            try {
                found = page.shown();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw error;
                }
            }
        }
        return found;
    }

    // -- kafka-ui: ReactiveAdminClient, TopicsService, BrokerService, MessagesService, AclsService, ... ---------------

    static void kafkaUi() throws Exception {
        page("dashboard", Consoles::dashboard);
        page("brokers", Consoles::brokers);
        page("broker's settings", () -> values(configs(ConfigResource.Type.BROKER, anyBroker(), false), "num.partitions"));
        page("broker's setting is changed", () -> {
            set(ConfigResource.Type.BROKER, anyBroker(), Map.of("leader.replication.throttled.rate", "100000000"));
            return "changed";
        });
        page("topics", () -> topics(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()));
        page("topic's settings", () -> {
            Config found = configs(ConfigResource.Type.TOPIC, topic, true);
            boolean explained = found.entries().stream().allMatch(each -> each.documentation() != null);
            return List.of(values(found, "cleanup.policy", "retention.bytes"), explained);
        });
        page("messages", () -> messages(Map.of()));
        page("messages by time", Consoles::messagesByTime);
        page("a message is produced", () -> produce(topic, "by kafka-ui"));
        page("producers", () -> admin.describeProducers(partitions(topic)).all().get().values().stream()
            .anyMatch(each -> !each.activeProducers().isEmpty()));
        page("consumers", Consoles::groups);
        page("offsets are reset", Consoles::reset);
        page("a group's offsets are deleted", () -> deleteOffsets(committed(group).keySet()));
        page("a group is deleted", () -> done(admin.deleteConsumerGroups(List.of(group)).all()));

        // What the form of a new topic and of its settings sends.
        Map<String, String> form = Map.of("cleanup.policy", "delete", "retention.ms", "604800000",
            "retention.bytes", "-1", "max.message.bytes", "1000012", "min.insync.replicas", "1");
        String made = topic + "-made";
        page("topic is created", () -> create(made, Optional.of((short) copies), form));
        page("topic is created with defaults", () -> create(made + "-plainly", Optional.empty(), Map.of()));
        page("topic is changed", () -> {
            Map<String, String> changed = new HashMap<>(form);
            changed.remove("max.message.bytes");
            changed.put("retention.ms", "3600000");
            List<AlterConfigOp> operations = configs(ConfigResource.Type.TOPIC, made, false).entries().stream()
                .filter(each -> each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .filter(each -> !changed.containsKey(each.name()))
                .map(each -> new AlterConfigOp(each, OpType.DELETE)).collect(Collectors.toCollection(ArrayList::new));
            changed.forEach((name, value) -> operations.add(new AlterConfigOp(new ConfigEntry(name, value), OpType.SET)));
            admin.incrementalAlterConfigs(Map.of(resource(ConfigResource.Type.TOPIC, made), operations)).all().get();
            return until(List.of("3600000"), () -> values(configs(ConfigResource.Type.TOPIC, made, false), "retention.ms"));
        });
        page("topic is grown", () -> {
            admin.createPartitions(Map.of(made, NewPartitions.increaseTo(4))).all().get();
            return until(4, () -> partitions(made).size());
        });
        page("copies are changed", () -> {
            Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
            for (var each : describe(List.of(made)).get(made).partitions()) {
                List<Integer> fewer = Stream.concat(Stream.of(each.leader()), each.replicas().stream()
                    .filter(other -> other.id() != each.leader().id())).map(Node::id).limit(Math.max(1, copies - 1)).toList();
                wanted.put(new TopicPartition(made, each.partition()), Optional.of(new NewPartitionReassignment(fewer)));
            }
            return done(admin.alterPartitionReassignments(wanted).all());
        });
        page("topic is emptied", () -> {
            produce(made, "to be deleted");
            return empty(made);
        });
        page("topic is made anew", () -> {
            // With everything that its settings show, whether set there or not.
            String again = made + "-plainly";
            Map<String, String> all = configs(ConfigResource.Type.TOPIC, again, false).entries().stream()
                .collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value));
            admin.deleteTopics(List.of(again)).all().get();
            return create(again, Optional.of((short) copies), all);
        });
        page("topic is deleted", () -> done(admin.deleteTopics(List.of(made, made + "-plainly")).all()));
        page("quotas", () -> {
            ClientQuotaEntity alice = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "alice"));
            alter(alice, 1_000_000.0);
            Object found = until(Map.of("producer_byte_rate", 1_000_000.0),
                () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(alice));
            alter(alice, null);
            return found;
        });
        page("ACLs", () -> acls(AclBindingFilter.ANY).size());
        page("ACLs of an application", Consoles::applicationsAcls);
        page("a replica is moved to another disk", () -> done(admin.alterReplicaLogDirs(Map.of(
            new org.apache.kafka.common.TopicPartitionReplica(topic, 0, Integer.parseInt(anyBroker())), "/elsewhere")).all()));
    }

    static Object dashboard() throws Exception {
        DescribeClusterResult known = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(false));
        String asked = Optional.ofNullable(known.controller().get()).map(Node::idString).orElse(anyBroker());
        Config settings = configs(ConfigResource.Type.BROKER, asked, false);
        var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        List<String> found = new ArrayList<>(List.of("version " + Optional.ofNullable(settings.get("inter.broker.protocol.version"))
            .map(ConfigEntry::value).orElse(String.valueOf(features.get("metadata.version")))));
        if (settings.get("delete.topic.enable") == null || settings.get("delete.topic.enable").value().equals("true")) {
            found.add("topics can be deleted");
        }
        try {
            acls(AclBindingFilter.ANY);
            found.add("ACLs are shown");
            Set<AclOperation> may = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get();
            if (may.contains(AclOperation.ALL) || may.contains(AclOperation.ALTER)) {
                found.add("ACLs can be changed");
            }
        } catch (ExecutionException error) {
            found.add(error.getCause().getClass().getSimpleName());
        }
        return found;
    }

    static Object messagesByTime() throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            Map<TopicPartition, Long> times = partitions(topic).stream().collect(Collectors.toMap(each -> each, each -> 1L));
            return consumer.offsetsForTimes(times).values().stream().map(each -> each.offset()).toList();
        }
    }

    static Object reset() throws Exception {
        boolean known = admin.listConsumerGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group));
        String state = admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().toString();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets(partitions(topic), OffsetSpec.earliest()).forEach((at, offset) -> offsets.put(at, new OffsetAndMetadata(offset)));
        admin.alterConsumerGroupOffsets(group, offsets).all().get();
        return List.of(known, state, sum(committed(group).values(), OffsetAndMetadata::offset));
    }

    static Object applicationsAcls() throws Exception {
        // A consumer, an idempotent producer, and Kafka Streams.
        Stream<AclBinding> consumer = Stream.concat(
            acl(ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.DESCRIBE), acl(ResourceType.GROUP, group, AclOperation.READ));
        Stream<AclBinding> producer = Stream.concat(
            acl(ResourceType.TOPIC, topic, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
            acl(ResourceType.CLUSTER, Resource.CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE));
        Stream<AclBinding> streams = Stream.of(ResourceType.TOPIC, ResourceType.GROUP)
            .flatMap(each -> acl(each, PatternType.PREFIXED, "an-application", AclOperation.ALL));
        Set<AclBinding> wanted = Stream.of(consumer, producer, streams).flatMap(each -> each).collect(Collectors.toSet());
        int before = acls(AclBindingFilter.ANY).size();
        admin.createAcls(wanted).all().get();
        Object during = until(before + wanted.size(), () -> acls(AclBindingFilter.ANY).size());
        admin.deleteAcls(wanted.stream().map(AclBinding::toFilter).toList()).all().get();
        Object after = until(before, () -> acls(AclBindingFilter.ANY).size());
        return List.of((int) during - before, (int) after - before);
    }

    // -- AKHQ: AbstractKafkaWrapper and its repositories --------------------------------------------------------------

    static void akhq() throws Exception {
        page("nodes", Consoles::brokers);
        page("node's settings", () -> values(configs(ConfigResource.Type.BROKER, anyBroker(), false), "num.partitions"));
        page("topics", () -> topics(admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
            .map(TopicListing::name).toList()));
        page("ends of partitions", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                List<TopicPartition> all = partitions(topic);
                return sum(consumer.endOffsets(all).values(), each -> each) - sum(consumer.beginningOffsets(all).values(), each -> each);
            }
        });
        page("messages", () -> messages(Map.of("max.poll.records", "50")));
        page("messages by time", Consoles::messagesByTime);
        page("a message is produced", () -> produce(topic, "by AKHQ"));
        page("topic's settings", () -> values(configs(ConfigResource.Type.TOPIC, topic, false), "cleanup.policy", "retention.bytes"));
        page("topic's settings are changed", () -> {
            set(ConfigResource.Type.TOPIC, topic, Map.of("retention.ms", "86400000"));
            return until(List.of("86400000"), () -> values(configs(ConfigResource.Type.TOPIC, topic, false), "retention.ms"));
        });
        String made = topic + "-made";
        page("topic is created", () -> create(made, Optional.of((short) copies), Map.of()));
        page("topic is emptied", () -> {
            produce(made, "to be deleted");
            return empty(made);
        });
        page("topic is deleted", () -> done(admin.deleteTopics(List.of(made)).all()));
        page("groups", Consoles::groups);
        page("offsets are reset", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("group.id", group))) {
                consumer.commitSync(partitions(topic).stream()
                    .collect(Collectors.toMap(each -> each, each -> new OffsetAndMetadata(0))));
            }
            return sum(committed(group).values(), OffsetAndMetadata::offset);
        });
        page("a group's offsets are deleted", () -> deleteOffsets(Set.copyOf(partitions(topic))));
        page("a group is deleted", () -> done(admin.deleteConsumerGroups(Set.of(group)).all()));
        page("ACLs", () -> acls(AclBindingFilter.ANY).size());
    }

    // -- what both ask for --------------------------------------------------------------------------------------------

    static Object brokers() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Collection<Node> nodes = cluster.nodes().get();
        Map<String, Object> found = new TreeMap<>();
        found.put("brokers", nodes.size());
        found.put("a controller among them", nodes.contains(cluster.controller().get()));
        found.put("an id", !cluster.clusterId().get().isEmpty());
        var directories = admin.describeLogDirs(nodes.stream().map(Node::id).toList()).allDescriptions().get().values();
        found.put("directories", sum(directories, each -> (long) each.size()));
        found.put("replicas of the topic", sum(directories, broker -> sum(broker.values(), each ->
            each.replicaInfos().keySet().stream().filter(replica -> replica.topic().equals(topic)).count())));
        found.put("their bytes", sum(directories, broker -> sum(broker.values(), each ->
            sum(each.replicaInfos().values(), ReplicaInfo::size))) > 0);
        found.put("room", directories.stream().allMatch(broker -> broker.values().stream().allMatch(each ->
            each.totalBytes().orElse(0) >= each.usableBytes().orElse(0) && each.usableBytes().orElse(0) > 0)));
        return found;
    }

    static Object topics(Collection<String> names) throws Exception {
        Map<String, TopicDescription> described = describe(names);
        admin.describeConfigs(names.stream().map(each -> resource(ConfigResource.Type.TOPIC, each)).toList(),
            new DescribeConfigsOptions().includeSynonyms(true)).all().get();
        var shown = described.get(topic).partitions();
        long inSync = sum(shown, each -> (long) each.isr().size());
        List<TopicPartition> all = partitions(topic);
        long messages = sum(offsets(all, OffsetSpec.latest()).values(), each -> each) - sum(offsets(all, OffsetSpec.earliest()).values(), each -> each);
        return List.of(shown.size(), shown.get(0).replicas().size(), inSync, messages, described.get(topic).isInternal());
    }

    static Object messages(Map<String, String> more) throws Exception {
        List<String> read = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(more)) {
            List<TopicPartition> all = partitions(topic);
            consumer.assign(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            consumer.beginningOffsets(all).forEach(consumer::seek);
            while (all.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                consumer.poll(Duration.ofMillis(200)).forEach(each -> read.add(each.key() + " " + each.value()));
            }
        }
        return read.stream().sorted().toList();
    }

    static Object produce(String to, String value) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        SETTINGS.forEach((name, each) -> settings.put((String) name, each));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            ProducerRecord<String, String> record = new ProducerRecord<>(to, 0, "console", value);
            record.headers().add(new RecordHeader("who", new byte[] {'x'}));
            return producer.send(record).get().partition();
        }
    }

    static Object groups() throws Exception {
        List<String> names = admin.listConsumerGroups().all().get().stream().map(ConsumerGroupListing::groupId).sorted().toList();
        Map<String, Object> found = new TreeMap<>();
        var described = admin.describeConsumerGroups(names).all().get();
        var offsets = admin.listConsumerGroupOffsets(names.stream()
            .collect(Collectors.toMap(each -> each, each -> new ListConsumerGroupOffsetsSpec()))).all().get();
        Map<TopicPartition, Long> ends = offsets(partitions(topic), OffsetSpec.latest());
        for (String each : names) {
            long lag = 0;
            for (var at : offsets.get(each).entrySet()) {
                lag += ends.get(at.getKey()) - at.getValue().offset();
            }
            ConsumerGroupDescription about = described.get(each);
            long assigned = sum(about.members(), member -> (long) member.assignment().topicPartitions().size());
            found.put(each, List.of(about.groupState().toString(), about.type().toString(), about.members().size(), assigned, lag,
                about.coordinator() != null));
        }
        return found;
    }

    static String anyBroker() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().idString();
    }

    static ConfigResource resource(ConfigResource.Type type, String name) {
        return new ConfigResource(type, name);
    }

    static Config configs(ConfigResource.Type type, String name, boolean documented) throws Exception {
        return admin.describeConfigs(List.of(resource(type, name)), new DescribeConfigsOptions()
            .includeSynonyms(true).includeDocumentation(documented)).all().get().values().iterator().next();
    }

    static List<String> values(Config config, String... names) {
        return Stream.of(names).map(each -> config.get(each).value()).toList();
    }

    static void set(ConfigResource.Type type, String name, Map<String, String> wanted) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource(type, name), wanted.entrySet().stream()
            .map(each -> new AlterConfigOp(new ConfigEntry(each.getKey(), each.getValue()), OpType.SET)).toList())).all().get();
    }

    static Map<String, TopicDescription> describe(Collection<String> names) throws Exception {
        return admin.describeTopics(names).allTopicNames().get();
    }

    static List<TopicPartition> partitions(String name) throws Exception {
        int count = describe(List.of(name)).get(name).partitions().size();
        return IntStream.range(0, count).mapToObj(each -> new TopicPartition(name, each)).toList();
    }

    static Map<TopicPartition, Long> offsets(Collection<TopicPartition> all, OffsetSpec which) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        admin.listOffsets(all.stream().collect(Collectors.toMap(each -> each, each -> which))).all().get()
            .forEach((at, each) -> found.put(at, each.offset()));
        return found;
    }

    static Map<TopicPartition, OffsetAndMetadata> committed(String name) throws Exception {
        return admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
    }

    static Object deleteOffsets(Set<TopicPartition> all) throws Exception {
        admin.deleteConsumerGroupOffsets(group, all).all().get();
        return committed(group).size();
    }

    static Object create(String name, Optional<Short> replicas, Map<String, String> settings) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, Optional.of(3), replicas).configs(settings))).all().get();
        return until((int) replicas.orElse((short) 1), () -> describe(List.of(name)).get(name).partitions().get(0).replicas().size());
    }

    static Object empty(String name) throws Exception {
        Map<TopicPartition, RecordsToDelete> ends = new HashMap<>();
        offsets(partitions(name), OffsetSpec.latest()).forEach((at, offset) -> ends.put(at, RecordsToDelete.beforeOffset(offset)));
        admin.deleteRecords(ends).all().get();
        return sum(offsets(partitions(name), OffsetSpec.earliest()).values(), each -> each);
    }

    static Collection<AclBinding> acls(AclBindingFilter filter) throws Exception {
        return admin.describeAcls(filter).values().get();
    }

    static Stream<AclBinding> acl(ResourceType type, String name, AclOperation... operations) {
        return acl(type, PatternType.LITERAL, name, operations);
    }

    static Stream<AclBinding> acl(ResourceType type, PatternType pattern, String name, AclOperation... operations) {
        ResourcePattern place = new ResourcePattern(type, name, pattern);
        return Stream.of(operations).map(each ->
            new AclBinding(place, new AccessControlEntry("User:an-application", "*", each, AclPermissionType.ALLOW)));
    }

    static void alter(ClientQuotaEntity entity, Double limit) throws Exception {
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", limit))))).all().get();
    }

    static KafkaConsumer<String, String> consumer(Map<String, String> more) {
        Properties settings = new Properties();
        settings.putAll(SETTINGS);
        settings.putAll(Map.of("enable.auto.commit", "false", "allow.auto.create.topics", "false", "auto.offset.reset", "earliest"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static Object done(KafkaFuture<Void> future) throws Exception {
        future.get();
        return "done";
    }

    static <T> long sum(Collection<T> all, Function<T, Long> value) {
        return all.stream().mapToLong(value::apply).sum();
    }
}
