import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of one transactional id: `address topic id`. Says what it has done. */
public class Transactions {
    private static KafkaProducer<String, String> producer(String address, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("transactional.id", id);
        KafkaProducer<String, String> made =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1], id = arguments[2];
        KafkaProducer<String, String> producer = producer(address, id);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "one"));
        producer.send(new ProducerRecord<>(topic, 1, null, "two"));
        producer.commitTransaction();
        System.out.println("committed");

        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "aborted")).get();
        producer.abortTransaction();
        System.out.println("aborted");

        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", id);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(java.time.Duration.ofMillis(50));
            }
            ConsumerGroupMetadata group = consumer.groupMetadata();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 1, null, "three"));
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(1)), group);
            producer.commitTransaction();
            if (consumer.committed(java.util.Set.of(place)).get(place).offset() != 1) {
                throw new IllegalStateException("another offset");
            }
        }
        System.out.println("offsets");

        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "fenced")).get();
        KafkaProducer<String, String> successor = producer(address, id);
        try {
            producer.commitTransaction();
            throw new IllegalStateException("it isn't fenced");
        } catch (ProducerFencedException expected) {
            System.out.println("fenced");
        }
        successor.close();
        producer.close();
    }
}
