import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * All that Kafka 2.1's AdminClient can, with a topic and a group that aren't there before and afterwards.
 *
 * Arguments: the bootstrap servers, the topic, the group. It prints what it found, as JSON.
 */
public class KafkaAdmin {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String group = arguments[2];
        Map<String, Object> servers = Map.of("bootstrap.servers", arguments[0]);
        TopicPartition first = new TopicPartition(topic, 0);
        Map<String, Object> found = new LinkedHashMap<>();
        try (AdminClient admin = AdminClient.create(servers)) {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "86400000"));
            admin.createTopics(Set.of(wanted)).all().get();
            try {
                admin.createTopics(Set.of(wanted)).all().get();
            } catch (ExecutionException error) {
                found.put("again", error.getCause().toString());
            }
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            found.put("partitions", admin.describeTopics(Set.of(topic)).all().get().get(topic).partitions().size());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config altered = new Config(Set.of(new ConfigEntry("retention.ms", "3600000")));
            admin.alterConfigs(Map.of(resource, altered)).all().get();
            Config config = admin.describeConfigs(Set.of(resource)).all().get().get(resource);
            found.put("retention.ms", config.get("retention.ms").value());
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                    servers, new ByteArraySerializer(), new ByteArraySerializer())) {
                for (int i = 0; i < 3; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, new byte[] {'x'}));
                }
            }
            admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).all().get();
            Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "group.id", group);
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                    settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                Set<TopicPartition> asked = Set.of(first);
                found.put("offsets", List.of(
                    consumer.beginningOffsets(asked).get(first), consumer.endOffsets(asked).get(first)));
                consumer.assign(asked);
                consumer.commitSync(Map.of(first, new OffsetAndMetadata(2, "note")));
            }
            OffsetAndMetadata committed =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first);
            found.put("committed", List.of(committed.offset(), committed.metadata()));
            found.put("listed", admin.listConsumerGroups().all().get().stream()
                .anyMatch(each -> each.groupId().equals(group)));
            found.put("state", admin.describeConsumerGroups(Set.of(group)).all().get().get(group).state().toString());
            Collection<Node> brokers = admin.describeCluster().nodes().get();
            found.put("brokers", brokers.size());
            List<Integer> ids = brokers.stream().map(Node::id).collect(Collectors.toList());
            if (admin.describeLogDirs(ids).all().get().isEmpty()) {
                throw new IllegalStateException("no directories");
            }
            admin.deleteConsumerGroups(Collections.singleton(group)).all().get();
            admin.deleteTopics(Set.of(topic)).all().get();
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }
}
