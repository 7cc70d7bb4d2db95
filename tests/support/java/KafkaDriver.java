import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own client, driven by a test: a line of JSON in, a line of JSON out. Bytes are base64.
 *
 *   {"do": "produce", "settings": {...}, "topic": t, "records": [{"key", "value", "timestamp", "headers": [[k, v]], "partition"}]}
 *   {"do": "read", "settings": {...}, "topics": [t], "count": n}    all partitions from their beginning, in no group;
 *       a line for each record comes first, since together they are large
 *   {"do": "join", "consumer": name, "settings": {...}, "topics": [t]}    a member of a group
 *   {"do": "poll", "consumer": name, "seconds": s}                        what has come meanwhile, and what is assigned
 *   {"do": "tool", "main": class, "arguments": [a], "given": text}        a console tool
 *   {"do": "commit", "consumer": name}, {"do": "close", "consumer": name}
 */
public class KafkaDriver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    static final Map<String, KafkaConsumer<byte[], byte[]>> CONSUMERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                carryOut(JSON.readTree(line), answer);
            } catch (Throwable error) {
                answer.put("error", String.valueOf(error) + (error.getCause() == null ? "" : " / " + error.getCause()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    static void carryOut(JsonNode asked, ObjectNode answer) throws Exception {
        switch (asked.get("do").asText()) {
            case "produce" -> produce(asked, answer);
            case "read" -> read(asked);
            case "join" -> {
                KafkaConsumer<byte[], byte[]> consumer = consumer(asked);
                consumer.subscribe(texts(asked.get("topics")));
                CONSUMERS.put(asked.get("consumer").asText(), consumer);
            }
            case "poll" -> {
                KafkaConsumer<byte[], byte[]> consumer = named(asked);
                ArrayNode records = answer.putArray("records");
                consumer.poll(Duration.ofMillis((long) (asked.get("seconds").asDouble() * 1000)))
                    .forEach(each -> records.add(shown(each)));
                ArrayNode assigned = answer.putArray("assigned");
                consumer.assignment().forEach(each -> assigned.add(each.topic() + "-" + each.partition()));
            }
            case "tool" -> tool(asked, answer);
            case "commit" -> named(asked).commitSync();
            case "close" -> CONSUMERS.remove(asked.get("consumer").asText()).close();
            default -> throw new IllegalArgumentException(asked.toString());
        }
    }

    /** Run a console tool's main in this JVM, which takes a tenth of what a JVM of its own would. */
    static void tool(JsonNode asked, ObjectNode answer) throws Exception {
        int[] status = {-1}; // some catch what ends them, and go on to another exit
        Exit.Procedure leave = (given, message) -> {
            status[0] = status[0] < 0 ? given : status[0];
            throw new Left();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream print = new PrintStream(printed, true, StandardCharsets.UTF_8);
        ByteArrayOutputStream complained = new ByteArrayOutputStream(); // other threads write here, too
        InputStream in = System.in;
        PrintStream error = System.err;
        System.setIn(new ByteArrayInputStream(asked.path("given").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(print);
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            Object arguments = texts(asked.get("arguments")).toArray(new String[0]);
            Class.forName(asked.get("main").asText()).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Left)) {
                throw thrown;
            }
        } finally {
            System.setIn(in);
            System.setOut(out);
            System.setErr(error);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
        }
        answer.put("status", Math.max(0, status[0])).put("printed", printed.toString(StandardCharsets.UTF_8));
        answer.put("complained", complained.toString(StandardCharsets.UTF_8));
    }

    static class Left extends Error {
    }

    static void produce(JsonNode asked, ObjectNode answer) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings(asked), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode each : asked.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : each.path("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Integer partition = each.hasNonNull("partition") ? each.get("partition").asInt() : null;
                Long timestamp = each.hasNonNull("timestamp") ? each.get("timestamp").asLong() : null;
                sent.add(producer.send(new ProducerRecord<>(asked.get("topic").asText(), partition,
                    timestamp, bytes(each.get("key")), bytes(each.get("value")), headers)));
            }
            producer.flush();
        }
        ArrayNode places = answer.putArray("placed");
        for (Future<RecordMetadata> each : sent) {
            places.addArray().add(each.get().partition()).add(each.get().offset());
        }
    }

    static void read(JsonNode asked) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(asked)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : texts(asked.get("topics"))) {
                for (PartitionInfo each : consumer.partitionsFor(topic)) {
                    partitions.add(new TopicPartition(topic, each.partition()));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            int count = 0;
            long end = System.nanoTime() + 50_000_000_000L;
            while (count < asked.get("count").asInt() && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    count++;
                    out.println(JSON.writeValueAsString(JSON.createObjectNode().set("record", shown(each))));
                }
            }
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode asked) {
        return new KafkaConsumer<>(settings(asked), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static KafkaConsumer<byte[], byte[]> named(JsonNode asked) {
        return CONSUMERS.get(asked.get("consumer").asText());
    }

    static ObjectNode shown(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode shown = JSON.createObjectNode();
        shown.put("topic", record.topic()).put("partition", record.partition());
        shown.put("offset", record.offset()).put("timestamp", record.timestamp());
        shown.put("key", record.key()).put("value", record.value());
        ArrayNode headers = shown.putArray("headers");
        for (Header each : record.headers()) {
            headers.addArray().add(each.key()).add(each.value());
        }
        return shown;
    }

    static Properties settings(JsonNode asked) {
        Properties settings = new Properties();
        asked.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(each -> texts.add(each.asText()));
        return texts;
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }
}
