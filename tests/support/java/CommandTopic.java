import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What the servers of a ksqlDB do with their command topic: `address topic id`.
 *
 * Each statement is written by a new producer with the transactional id that all of them share,
 * once its server has read all that was written before; and then that reads it back. Who begins
 * meanwhile fences it. Says the commands that both servers have read.
 */
public class CommandTopic {
    private static final long PATIENCE_MS = 60_000;
    private static final Map<String, String> CONFIG =
        Map.of("retention.ms", "-1", "cleanup.policy", "delete", "unclean.leader.election.enable", "false");

    /** What who is fenced may hear, by when that is. */
    private static final Set<Class<?>> FENCED =
        Set.of(ProducerFencedException.class, InvalidProducerEpochException.class, InvalidTxnStateException.class);

    private final String address, topic, id;
    private final TopicPartition place;

    private CommandTopic(String[] arguments) {
        address = arguments[0];
        topic = arguments[1];
        id = arguments[2];
        place = new TopicPartition(topic, 0);
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        return settings;
    }

    private KafkaConsumer<String, String> consumer() {
        Properties settings = settings();
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "none");
        KafkaConsumer<String, String> made =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.assign(List.of(place));
        return made;
    }

    /** Reads the topic from its start on, in a thread. */
    private class Server implements AutoCloseable {
        final List<String> read = new ArrayList<>();
        private final AtomicLong position = new AtomicLong();
        private final AtomicBoolean isOver = new AtomicBoolean();
        private final Thread thread = new Thread(this::run);

        Server() {
            thread.start();
        }

        private void run() {
            try (KafkaConsumer<String, String> consumer = consumer()) {
                consumer.seekToBeginning(List.of(place));
                while (!isOver.get()) {
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                        synchronized (read) {
                            read.add(each.value());
                        }
                    }
                    position.set(consumer.position(place)); // which passes markers, too
                }
            }
        }

        KafkaProducer<String, String> begin() throws Exception {
            Properties settings = settings();
            settings.put("transactional.id", id);
            settings.put("acks", "all");
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            producer.initTransactions();
            producer.beginTransaction();
            try (KafkaConsumer<String, String> other = consumer()) {
                waitFor(other.endOffsets(List.of(place)).get(place));
            }
            return producer;
        }

        void waitFor(long end) throws Exception {
            long until = System.currentTimeMillis() + PATIENCE_MS;
            while (position.get() < end) {
                if (System.currentTimeMillis() > until) {
                    throw new IllegalStateException("it is at " + position + ", and the end is " + end);
                }
                Thread.sleep(5);
            }
        }

        long enqueue(KafkaProducer<String, String> producer, String command) throws Exception {
            return producer.send(new ProducerRecord<>(topic, 0, command, command)).get().offset();
        }

        void execute(String command) throws Exception {
            KafkaProducer<String, String> producer = begin();
            try {
                long offset = enqueue(producer, command);
                producer.commitTransaction();
                waitFor(offset + 1);
                synchronized (read) {
                    check(read.contains(command), command + " isn't read by who has written it");
                }
            } finally {
                producer.close();
            }
        }

        /** Executes some, until each is; the names of those that were given up as another began. */
        Set<String> executeAll(String name, int count) throws Exception {
            Set<String> fenced = new HashSet<>();
            for (int number = 0, tries = 0; number < count; tries++) {
                String command = name + "." + number + "." + tries;
                try {
                    execute(command);
                    number++;
                } catch (KafkaException | ExecutionException failure) {
                    Throwable cause = failure;
                    while (!FENCED.contains(cause.getClass())) {
                        check(cause.getCause() != null, failure.toString());
                        cause = cause.getCause();
                    }
                    fenced.add(command);
                }
            }
            return fenced;
        }

        @Override
        public void close() throws Exception {
            isOver.set(true);
            thread.join();
        }
    }

    private static void check(boolean isSo, String otherwise) {
        if (!isSo) {
            throw new IllegalStateException(otherwise);
        }
    }

    /** Creates the topic, or looks whether it is as it should be. */
    private void ensureTopic() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            if (!admin.listTopics().names().get().contains(topic)) {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(CONFIG))).all().get();
            }
            TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(description.partitions().size() == 1, "its partitions");
            check(description.partitions().get(0).replicas().size() == 1, "its copies");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            for (Map.Entry<String, String> each : CONFIG.entrySet()) {
                check(each.getValue().equals(config.get(each.getKey()).value()), each.getKey());
            }
        }
    }

    private void run() throws Exception {
        ensureTopic();
        ensureTopic();
        try (Server one = new Server(); Server other = new Server()) {
            one.execute("first");
            other.execute("second");
            KafkaProducer<String, String> slow = one.begin();
            one.enqueue(slow, "fenced");
            other.execute("third");
            try {
                slow.commitTransaction();
                throw new IllegalStateException("it isn't fenced");
            } catch (ProducerFencedException expected) {
                slow.close();
            }
            Set<String> fenced = new HashSet<>();
            List<Throwable> failures = new ArrayList<>();
            Thread beside = new Thread(() -> {
                try {
                    Set<String> found = other.executeAll("other", 5);
                    synchronized (fenced) {
                        fenced.addAll(found);
                    }
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            beside.start();
            Set<String> found = one.executeAll("one", 5);
            beside.join();
            check(failures.isEmpty(), failures.toString());
            fenced.addAll(found);
            one.execute("last");
            try (KafkaConsumer<String, String> consumer = consumer()) {
                other.waitFor(consumer.endOffsets(List.of(place)).get(place));
            }
            check(one.read.equals(other.read), one.read + " and " + other.read);
            check(one.read.stream().noneMatch(fenced::contains), one.read + ", fenced: " + fenced);
            System.out.println(String.join(" ", one.read));
        }
    }

    public static void main(String[] arguments) throws Exception {
        new CommandTopic(arguments).run();
    }
}
