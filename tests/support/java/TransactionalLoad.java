import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One transaction after the other, until its input ends: `address topic partitions group`. Each
 * writes its number once to every partition, and commits it as an offset. Says what became of each.
 */
public class TransactionalLoad {
    private static KafkaProducer<String, String> producer(String address) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("transactional.id", "load");
        settings.put("reconnect.backoff.max.ms", "200");
        KafkaProducer<String, String> made =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    @SuppressWarnings("removal") // the group has no members
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(arguments[3]);
        TopicPartition source = new TopicPartition("source", 0);
        KafkaProducer<String, String> producer = null;
        for (int number = 1; System.in.available() == 0; number++) {
            String state = "aborted";
            try {
                if (producer == null) {
                    producer = producer(address);
                }
                producer.beginTransaction();
                for (int each = 0; each < partitions; each++) {
                    producer.send(new ProducerRecord<>(topic, each, null, "" + number));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(source, new OffsetAndMetadata(number)), group);
                if (number % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    state = "unknown";
                    producer.commitTransaction();
                    state = "committed";
                }
            } catch (KafkaException error) {
                System.out.println("error " + error);
                try {
                    if (producer != null) {
                        producer.abortTransaction();
                        state = "aborted";
                    }
                } catch (KafkaException fatal) {
                    System.out.println("error " + fatal);
                    producer.close(java.time.Duration.ZERO);
                    producer = null;
                }
            }
            System.out.println(state + " " + number);
        }
        if (producer != null) {
            producer.close();
        }
    }
}
