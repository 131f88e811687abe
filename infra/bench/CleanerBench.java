import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Times Kafka's own cleaner, in process and without a broker, over the records of one topic partition.
 *
 * <p>Arguments: the records, where to write what is left, bytes of a value, offset of the first dirty record, bytes of a
 * batch, bytes of a segment, codec, runs. A record in both files is offset (8 bytes), 1 for a value or 0 for none (4
 * bytes), key (16 bytes), value (as many as said, zeros for none), all big-endian. Only {@code Cleaner.doClean} is timed;
 * each run, and one before that does not count, cleans a log that was appended afresh. A line of wall and processor
 * nanoseconds for each run goes to standard output.
 */
public final class CleanerBench {
    private static final int KEY_BYTES = 16;
    private static final long NOW_MS = 1_800_000_000_000L;
    private static final int LARGEST_BATCH = 1 << 26;
    private static final TopicPartition NAME = new TopicPartition("t", 0);

    private final Path input;
    private final int valueBytes;
    private final long firstDirty;
    private final int batchBytes;
    private final int segmentBytes;
    private final Compression codec;

    private CleanerBench(String[] arguments) {
        input = Path.of(arguments[0]);
        valueBytes = Integer.parseInt(arguments[2]);
        firstDirty = Long.parseLong(arguments[3]);
        batchBytes = Integer.parseInt(arguments[4]);
        segmentBytes = Integer.parseInt(arguments[5]);
        codec = Compression.of(CompressionType.forName(arguments[6])).build();
    }

    public static void main(String[] arguments) throws Exception {
        CleanerBench bench = new CleanerBench(arguments);
        Path output = Path.of(arguments[1]);
        int runs = Integer.parseInt(arguments[7]);
        for (int run = 0; run <= runs; run++) {
            Path folder = Files.createTempDirectory(output.toAbsolutePath().getParent(), "kafka-log");
            try {
                long[] nanos = bench.once(folder, run == runs ? output : null);
                if (run > 0) {
                    System.out.println(nanos[0] + " " + nanos[1]);
                }
            } finally {
                delete(folder);
            }
        }
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> paths = Files.walk(folder)) {
            for (Path path : (Iterable<Path>) paths.sorted(Comparator.reverseOrder())::iterator) {
                Files.deleteIfExists(path);
            }
        }
    }

    private long[] once(Path folder, Path output) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("segment.ms", Long.MAX_VALUE);
        configs.put("segment.bytes", segmentBytes);
        configs.put("message.timestamp.before.max.ms", Long.MAX_VALUE);
        configs.put("message.timestamp.after.max.ms", Long.MAX_VALUE);
        configs.put("max.message.bytes", LARGEST_BATCH);
        configs.put("cleanup.policy", "compact");
        Time time = Time.SYSTEM;
        Path home = Files.createDirectory(folder.resolve(NAME.toString()));
        BrokerTopicStats statistics = new BrokerTopicStats(false);
        UnifiedLog log = UnifiedLog.create(home.toFile(), new LogConfig(configs), 0, 0, new KafkaScheduler(1), statistics, time,
            300_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE, new LogDirFailureChannel(1), true,
            Optional.empty());
        try {
            int dirty = append(log);
            log.roll();
            log.updateHighWatermark(log.logEndOffset());
            // As full as a broker lets it get (log.cleaner.io.buffer.load.factor), so that the whole head is one pass.
            int map = (int) Math.min(Integer.MAX_VALUE - 8, dirty / 0.9 * 24 + 1024);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(map, "MD5"), 1 << 20, LARGEST_BATCH, 0.9,
                new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "entries", time), time, partition -> { });
            LogToClean toClean = new LogToClean(log, firstDirty, log.logEndOffset(), false);
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            long wall = System.nanoTime();
            long processor = threads.getCurrentThreadCpuTime();
            cleaner.doClean(toClean, NOW_MS);
            long[] nanos = {System.nanoTime() - wall, threads.getCurrentThreadCpuTime() - processor};
            if (output != null) {
                write(log, output);
            }
            return nanos;
        } finally {
            log.close();
            statistics.close();
        }
    }

    /** Append all records in batches; how many of them are dirty. */
    private int append(UnifiedLog log) throws IOException {
        int recordBytes = 8 + 4 + KEY_BYTES + valueBytes;
        long size = Files.size(input);
        int dirty = 0;
        int perBatch = Math.max(1, batchBytes / (KEY_BYTES + valueBytes));
        ByteBuffer space = ByteBuffer.allocate(batchBytes * 2 + (1 << 16));
        try (FileChannel channel = FileChannel.open(input, StandardOpenOption.READ)) {
            for (long at = 0; at < size; ) {
                int count = (int) Math.min(perBatch, (size - at) / recordBytes);
                MappedByteBuffer records = channel.map(FileChannel.MapMode.READ_ONLY, at, (long) count * recordBytes);
                // Only a replica takes offsets as they are, and a tail has gaps.
                MemoryRecordsBuilder batch = null;
                for (int number = 0; number < count; number++) {
                    long offset = records.getLong();
                    boolean present = records.getInt() != 0;
                    byte[] key = new byte[KEY_BYTES];
                    records.get(key);
                    byte[] value = new byte[valueBytes];
                    records.get(value);
                    if (batch == null) {
                        space.clear();
                        batch = MemoryRecords.builder(space, RecordBatch.CURRENT_MAGIC_VALUE, codec, TimestampType.CREATE_TIME,
                            offset, NOW_MS - 86_400_000L, 0);
                    }
                    batch.appendWithOffset(offset, NOW_MS - 86_400_000L, key, present ? value : null);
                    if (offset >= firstDirty) {
                        dirty++;
                    }
                }
                log.appendAsFollower(batch.build(), 0);
                at += (long) count * recordBytes;
            }
        }
        return dirty;
    }

    private void write(UnifiedLog log, Path output) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(output), 1 << 20))) {
            byte[] key = new byte[KEY_BYTES];
            byte[] value = new byte[valueBytes];
            byte[] none = new byte[valueBytes];
            for (LogSegment segment : log.logSegments()) {
                for (RecordBatch batch : segment.log().batches()) {
                    for (Record record : batch) {
                        out.writeLong(record.offset());
                        out.writeInt(record.hasValue() ? 1 : 0);
                        record.key().get(key);
                        out.write(key);
                        if (record.hasValue()) {
                            record.value().get(value);
                        }
                        out.write(record.hasValue() ? value : none);
                    }
                }
            }
        }
    }
}
