import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring moves each message of a topic to another one, exactly once: by listeners in transactions,
 * one for each poll, which fail on messages of a certain kind when they first come. With
 * executeInTransaction it says in a third topic that it has started.
 *
 * Arguments: the servers, and the three topics.
 */
public class SpringMover {
    public static void main(String[] arguments) throws Exception {
        String from = arguments[1], to = arguments[2], starts = arguments[3];
        Map<String, Object> shared = new HashMap<>();
        shared.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);

        DefaultKafkaProducerFactory<byte[], byte[]> producers = new DefaultKafkaProducerFactory<>(
                with(shared, Map.of(ProducerConfig.MAX_BLOCK_MS_CONFIG, 20_000)),
                new ByteArraySerializer(), new ByteArraySerializer());
        producers.setTransactionIdPrefix("mover-");
        KafkaTemplate<byte[], byte[]> template = new KafkaTemplate<>(producers);
        while (true) {
            try {
                template.executeInTransaction(each -> each.send(starts, "started".getBytes()));
                break;
            } catch (RuntimeException error) {
                error.printStackTrace(); // no broker is there for a moment
            }
        }

        ContainerProperties settings = new ContainerProperties(from);
        settings.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        settings.setMessageListener((BatchMessageListener<byte[], byte[]>) records -> {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                template.send(to, record.partition(), record.key(), record.value());
                String number = new String(record.value());
                if (number.endsWith("77") && seen.add(number)) {
                    throw new IllegalStateException("not at once: " + number);
                }
            }
        });
        ConcurrentMessageListenerContainer<byte[], byte[]> container = new ConcurrentMessageListenerContainer<>(
                new DefaultKafkaConsumerFactory<>(
                        with(shared, Map.of(
                                ConsumerConfig.GROUP_ID_CONFIG, "movers",
                                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                                ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000,
                                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 20)),
                        new ByteArrayDeserializer(), new ByteArrayDeserializer()),
                settings);
        container.setConcurrency(3);
        // Unless told so it leaves out what has failed ten times.
        container.setAfterRollbackProcessor(
                new DefaultAfterRollbackProcessor<>(new FixedBackOff(100, FixedBackOff.UNLIMITED_ATTEMPTS)));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            container.stop();
            producers.destroy();
        }));
        container.start();
        Thread.currentThread().join();
    }

    private static Map<String, Object> with(Map<String, Object> shared, Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(shared);
        all.putAll(more);
        return all;
    }
}
