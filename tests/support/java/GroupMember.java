import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;

/** Java's member of a group: takes what `kafka_group_member.py` takes, and prints what it prints. */
public class GroupMember {
    static volatile boolean stopping = false;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String kind = arguments[3].equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        if (arguments[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + kind);
            settings.put("session.timeout.ms", arguments[5]);
            settings.put("heartbeat.interval.ms", "300");
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (!arguments[4].equals("-")) {
            settings.put("group.instance.id", arguments[4]);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        Thread reader = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            consumer.wakeup();
            try {
                reader.join();
            } catch (InterruptedException e) {
                // it is over anyway
            }
        }));
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                // Whoever gets them now reads again from what is committed.
                ends.keySet().removeAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
        });
        try {
            while (!stopping) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                    out.println("seen " + each.partition() + " " + each.offset() + " " + each.value());
                    ends.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                }
                out.flush();
                if (ends.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync(ends, Duration.ofSeconds(10));
                } catch (CommitFailedException | RebalanceInProgressException | TimeoutException e) {
                    continue; // tried again with the next turn
                }
                ends.forEach((place, end) -> out.println("done " + place.partition() + " " + end.offset()));
                ends.clear();
                out.flush();
            }
        } catch (WakeupException e) {
            // told to stop
        }
        out.flush();
        consumer.close(Duration.ofSeconds(10));
    }
}
