import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Record batches as Kafka's own library writes and reads them.
 *
 *   write    prints batches, one a line: a name, and the bytes in hex
 *   read     for each line of hex: a line per record, then an empty one; or "refused: " and why
 */
public class KafkaRecords {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write();
        } else {
            read();
        }
    }

    static void write() {
        for (CompressionType type : CompressionType.values()) {
            ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                buffer, RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(type).build(),
                TimestampType.CREATE_TIME, 41L, 0L, 4711L, (short) 3, 70, false, 5);
            builder.append(1700000000000L, "key".getBytes(), "value".getBytes(), new Header[0]);
            builder.append(1700000000007L, null, new byte[0], new Header[] {
                new RecordHeader("näme", "ü".getBytes(StandardCharsets.UTF_8)),
                new RecordHeader("none", null), new RecordHeader("näme", new byte[0])});
            builder.append(1699999999000L, new byte[0], null, new Header[0]);
            byte[] large = new byte[300];
            Arrays.fill(large, (byte) 'x');
            builder.append(1700000100000L, "key".getBytes(), large, new Header[0]);
            show(type.name, builder.build());
        }
        MemoryRecordsBuilder logged = MemoryRecords.builder(
            ByteBuffer.allocate(1024), RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE,
            TimestampType.LOG_APPEND_TIME, 0L, 1700000000042L);
        logged.append(1L, null, "appended".getBytes());
        show("log append time", logged.build());
        // A batch that sat in a file while compaction took its first and last record.
        MemoryRecordsBuilder gaps = MemoryRecords.builder(
            ByteBuffer.allocate(1024), Compression.NONE, TimestampType.CREATE_TIME, 100L);
        gaps.appendWithOffset(103L, 1700000000000L, "a".getBytes(), "left".getBytes());
        gaps.appendWithOffset(105L, 1700000000001L, "b".getBytes(), "over".getBytes());
        gaps.overrideLastOffset(109L);
        show("gaps", gaps.build());
    }

    static void show(String name, MemoryRecords records) {
        ByteBuffer bytes = records.buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        System.out.println(name + "\t" + HEX.formatHex(copy));
    }

    static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> shown = new ArrayList<>();
            try {
                ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(line));
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        shown.add(text(record));
                    }
                }
            } catch (Exception error) {
                shown.add("refused: " + error.getMessage());
            }
            for (String each : shown) {
                System.out.println(each);
            }
            System.out.println();
        }
    }

    static String text(Record record) {
        StringBuilder out = new StringBuilder();
        out.append(record.offset()).append(' ').append(record.timestamp());
        out.append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers()) {
            byte[] key = header.key().getBytes(StandardCharsets.UTF_8);
            ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
            out.append(' ').append(HEX.formatHex(key)).append('=').append(hex(value));
        }
        return out.toString();
    }

    static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return '"' + HEX.formatHex(copy) + '"';
    }
}
