import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What transactional_client.py does, by Java's clients. */
public class TransactionalClient implements ConsumerRebalanceListener {
    private final String address, topic, name, life, group;
    private final int partitions;
    private final Random random;
    private final Set<Integer> everywhere = new HashSet<>();
    private final Map<Integer, Long> next = new HashMap<>(); // where it reads on, by partition
    private final Map<Integer, Long> first = new HashMap<>(); // what a transaction polled first
    private List<Object> steps = new ArrayList<>();
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;
    private int clients, count, moves;

    private TransactionalClient(String[] arguments) {
        address = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        name = arguments[3];
        life = arguments[4];
        group = arguments[5].equals("assign") ? null : arguments[5];
        random = new Random(arguments[6].hashCode());
        for (int each = 0; each < partitions; each++) {
            everywhere.add(each);
        }
    }

    public static void main(String[] arguments) throws Exception {
        TransactionalClient client = new TransactionalClient(arguments);
        while (System.in.available() == 0) {
            if (client.producer != null) {
                client.transact();
                continue;
            }
            try {
                client.beginAnew();
            } catch (KafkaException error) {
                System.out.println("{" + said(error) + "}");
            }
        }
        if (client.consumer != null) {
            client.producer.close();
            client.consumer.close();
        }
    }

    // -- beginning ------------------------------------------------------------------------------

    private void beginAnew() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("request.timeout.ms", "6000"); // a broker that sleeps is given up so soon
        Properties writing = new Properties();
        writing.putAll(settings);
        writing.put("transactional.id", name);
        writing.put("transaction.timeout.ms", "15000");
        writing.put("max.block.ms", "10000");
        KafkaProducer<String, String> made =
            new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
        try {
            made.initTransactions();
        } catch (KafkaException error) {
            made.close(Duration.ZERO);
            throw error;
        }
        producer = made;
        if (consumer != null) {
            consumer.close();
        }
        settings.put("group.id", group == null ? name : group);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if ("consumer".equals(group)) {
            settings.put("group.protocol", group);
        } else {
            settings.put("session.timeout.ms", "6000");
        }
        settings.put("max.poll.interval.ms", "6000");
        settings.put("fetch.max.wait.ms", "100");
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        clients++;
        steps = new ArrayList<>();
        next.clear();
        if (group == null) {
            assign();
        } else {
            consumer.subscribe(List.of(topic), this);
        }
    }

    private void assign() {
        List<Integer> chosen = new ArrayList<>(everywhere);
        Collections.shuffle(chosen, random);
        chosen = chosen.subList(0, 1 + random.nextInt(partitions));
        next.keySet().retainAll(chosen);
        List<TopicPartition> fresh = new ArrayList<>(), all = new ArrayList<>();
        for (int each : chosen) {
            all.add(place(each));
            if (!next.containsKey(each)) {
                fresh.add(place(each));
            }
        }
        consumer.assign(all);
        next.forEach((partition, offset) -> consumer.seek(place(partition), offset));
        if (!fresh.isEmpty() && random.nextInt(5) == 0) { // none would be all of them
            consumer.seekToBeginning(fresh);
        } else if (!fresh.isEmpty()) {
            consumer.seekToEnd(fresh);
        }
        Set<Integer> moved = new HashSet<>(everywhere);
        moved.removeAll(next.keySet());
        tellMoved(moved);
    }

    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        Set<Integer> moved = new HashSet<>();
        places.forEach(each -> moved.add(each.partition()));
        moves++;
        next.keySet().removeAll(moved);
        first.keySet().removeAll(moved);
        tellMoved(moved);
    }

    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        onPartitionsAssigned(places);
    }

    private void tellMoved(Set<Integer> moved) {
        steps.add("[\"assign\", " + moved + "]");
    }

    // -- a transaction --------------------------------------------------------------------------

    private void transact() {
        if (group == null && random.nextInt(20) == 0) {
            assign();
        }
        List<Sent> plan = new ArrayList<>(); // null for a poll
        for (int left = 1 + random.nextInt(6); left > 0; left--) {
            boolean sends = random.nextInt(10) < 6;
            plan.add(sends ? new Sent(random.nextInt(partitions), value()) : null);
        }
        first.clear();
        int before = moves;
        List<Sent> sends = new ArrayList<>(plan);
        sends.removeIf(each -> each == null);
        String process = '"' + name + "." + life + "." + clients + '"';
        String told = group == null ? "null" : '"' + group + '"';
        tell("aborted", sends, "\"process\": " + process + ", \"group\": " + told
            + ", \"begin\": " + System.nanoTime());
        String outcome = "aborted", error = "\"error\": null";
        try {
            producer.beginTransaction();
            boolean polls = false;
            for (Sent each : plan) {
                if (each == null) {
                    polls |= poll();
                } else {
                    send(each);
                }
            }
            boolean isMoved = moves != before && polls;
            if (group != null && !isMoved && !first.isEmpty()) {
                sendOffsets();
            }
            if (!isMoved && random.nextInt(5) != 0) {
                outcome = "unknown";
                tell(outcome, steps, error);
                end(producer::commitTransaction);
                outcome = "committed";
            } else {
                end(producer::abortTransaction);
            }
        } catch (KafkaException failure) {
            error = said(failure);
            outcome = failed(outcome);
        }
        tell(outcome, steps, error + ", \"end\": " + System.nanoTime());
        steps = new ArrayList<>();
        if (outcome.equals("aborted") && producer != null) {
            rewind();
        }
    }

    private String value() {
        count++;
        return name + "." + life + "-" + count;
    }

    private void send(Sent sent) {
        steps.add(sent);
        producer.send(
            new ProducerRecord<>(topic, sent.partition, null, sent.value),
            (place, error) -> sent.offset = error == null ? place.offset() : null);
    }

    private boolean poll() {
        int before = moves;
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(30))) {
            found.add("[" + each.partition() + ", " + each.offset() + ", \"" + each.value() + "\"]");
            first.putIfAbsent(each.partition(), each.offset());
            next.put(each.partition(), each.offset() + 1);
        }
        if (!found.isEmpty()) {
            steps.add("[\"poll\", " + found + "]");
            if (moves != before) {
                tellMoved(everywhere);
            }
        }
        return !found.isEmpty();
    }

    private void sendOffsets() {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int each : first.keySet()) {
            offsets.put(place(each), new OffsetAndMetadata(next.get(each)));
        }
        end(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
        if (random.nextInt(100) == 0) { // others get its partitions before it commits
            LockSupport.parkNanos(random.nextInt(12_000) * 1_000_000L);
        }
    }

    /** Call it again while that may help: the same call goes on with what is under way. */
    private static void end(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException again) {
                continue;
            }
        }
    }

    private String failed(String outcome) {
        try {
            end(producer::abortTransaction);
            return "aborted";
        } catch (KafkaException fatal) {
            producer.close(Duration.ZERO);
            producer = null;
            return outcome;
        }
    }

    /** Read again what was polled in vain. */
    private void rewind() {
        first.forEach((partition, offset) -> {
            consumer.seek(place(partition), offset);
            next.put(partition, offset);
        });
    }

    private TopicPartition place(int partition) {
        return new TopicPartition(topic, partition);
    }

    private static String said(KafkaException error) {
        return "\"error\": \"" + error.getClass().getSimpleName() + "\"";
    }

    private static void tell(String outcome, List<?> steps, String more) {
        System.out.println("{\"outcome\": \"" + outcome + "\", \"steps\": " + steps + ", " + more + "}");
    }

    private static class Sent {
        final int partition;
        final String value;
        volatile Long offset;

        Sent(int partition, String value) {
            this.partition = partition;
            this.value = value;
        }

        public String toString() {
            return "[\"send\", " + partition + ", \"" + value + "\", " + offset + "]";
        }
    }
}
