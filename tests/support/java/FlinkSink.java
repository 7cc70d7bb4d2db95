import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.common.serialization.LongSerializer;

/**
 * Flink writes the numbers from 0 on, exactly once, from where its last checkpoint was.
 *
 * Arguments: the servers, the topic, how many numbers and how many of them a second, a directory for
 * checkpoints, and the one to begin from, if there is any.
 */
public class FlinkSink {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "200ms");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[4]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "100ms");
        if (arguments.length > 5) {
            settings.setString("execution.state-recovery.path", "file://" + arguments[5]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        DataGeneratorSource<Long> numbers = new DataGeneratorSource<>(
            number -> number,
            Long.parseLong(arguments[2]),
            RateLimiterStrategy.perSecond(Double.parseDouble(arguments[3])),
            Types.LONG);
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "60000");
        KafkaSink<Long> sink = KafkaSink.<Long>builder()
            .setBootstrapServers(arguments[0])
            .setKafkaProducerConfig(producer)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setRecordSerializer(KafkaRecordSerializationSchema.<Long>builder()
                .setTopic(arguments[1])
                .setKafkaValueSerializer(LongSerializer.class)
                .build())
            .build();
        environment.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers").sinkTo(sink);
        environment.execute("numbers");
    }
}
