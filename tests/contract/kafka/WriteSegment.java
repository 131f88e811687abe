import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

/**
 * Writes the log segment that test_logs.py reads, with Kafka's own classes (kafka-clients 4.4.0 and what it compresses
 * with on the class path). For each codec: a batch of four plain records, a transaction of one record, and its marker.
 */
public class WriteSegment {
    private static final long TIME = 1_799_000_000_000L;
    private static final byte V2 = RecordBatch.MAGIC_VALUE_V2;

    public static void main(String[] arguments) throws Exception {
        FileRecords file = FileRecords.open(new File(arguments[0]));
        Compression[] codecs = {
            Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(),
            Compression.zstd().build()
        };
        long offset = 1000;
        for (int codec = 0; codec < codecs.length; codec++) {
            SimpleRecord[] plain = {
                record(offset, "key", "value ".repeat(50)),
                record(offset + 1, "", "", new RecordHeader("h", bytes("x")), new RecordHeader("é", null)),
                record(offset + 2, null, "value ".repeat(50)),
                record(offset + 3, "gone", null)
            };
            file.append(MemoryRecords.withRecords(V2, offset, codecs[codec], TimestampType.CREATE_TIME, -1L, (short) -1, -1,
                0, false, plain));
            file.append(MemoryRecords.withTransactionalRecords(V2, offset + 4, codecs[codec], 77L, (short) 3, codec, 0,
                record(offset + 4, "in", "transaction ".repeat(25))));
            ControlRecordType type = codec % 2 == 0 ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            file.append(MemoryRecords.withEndTransactionMarker(offset + 5, TIME + offset + 5, 0, 77L, (short) 3,
                new EndTransactionMarker(type, 5)));
            offset += 6;
        }
        MemoryRecordsBuilder appended = MemoryRecords.builder(ByteBuffer.allocate(1024), V2, Compression.NONE,
            TimestampType.LOG_APPEND_TIME, offset, TIME);
        appended.append(record(offset, "key", "value"));
        file.append(appended.build());
        file.close();
    }

    private static SimpleRecord record(long offset, String key, String value, Header... headers) {
        return new SimpleRecord(TIME + offset, bytes(key), bytes(value), headers);
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
