import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log cleaner, in process and without a broker: workloads in as JSON lines on standard input, what the
 * cleaner left of each out as JSON lines on standard output, in the same order (both are described in kafka.py).
 *
 * <p>Nothing of the decision is made here. LogCleanerManager says whether there is something to clean and from where to
 * where, Cleaner cleans it, the manager checkpoints it; this class appends records, sets the clock and reads the log.
 */
public final class KafkaCleaner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PASSES = 10_000;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Path folder = Files.createTempDirectory("kafka-cleaner");
            try (Log log = new Log(folder, JSON.readTree(line))) {
                out.write(JSON.writeValueAsString(log.replay()));
                out.newLine();
                out.flush();
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

    /** Stands still until it is set. */
    private static final class Clock implements Time {
        private long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }
    }

    /** One topic partition with a cleaner of its own. */
    private static final class Log implements AutoCloseable {
        private static final int LARGEST_BATCH = 1 << 25;
        private static final TopicPartition NAME = new TopicPartition("t", 0);

        private final JsonNode workload;
        private final Path folder;
        private final Clock clock = new Clock();
        private final LogDirFailureChannel failures = new LogDirFailureChannel(1);
        private final BrokerTopicStats statistics = new BrokerTopicStats(false);
        private final LogConfig whileAppending;
        private final LogConfig whileCleaning;
        private final UnifiedLog log;
        private final LogCleanerManager manager;
        private final Cleaner cleaner;
        private final Map<Long, Integer> sequences = new HashMap<>();

        Log(Path folder, JsonNode workload) throws Exception {
            this.folder = folder;
            this.workload = workload;
            Map<String, Object> configs = new HashMap<>();
            configs.put("segment.ms", Long.MAX_VALUE); // segments end where the workload says so
            configs.put("segment.index.bytes", 4096); // mapped whole for every segment
            configs.put("message.timestamp.before.max.ms", Long.MAX_VALUE);
            configs.put("message.timestamp.after.max.ms", Long.MAX_VALUE);
            configs.put("max.message.bytes", LARGEST_BATCH);
            configs.put("cleanup.policy", "delete"); // lets records without a key in
            configs.put("retention.ms", -1);
            whileAppending = new LogConfig(configs);
            workload.get("configs").properties().forEach(config -> configs.put(config.getKey(), config.getValue().asText()));
            configs.put("cleanup.policy", "compact");
            whileCleaning = new LogConfig(configs);
            Path home = Files.createDirectory(folder.resolve(NAME.toString()));
            log = UnifiedLog.create(home.toFile(), whileAppending, 0, 0, new KafkaScheduler(1), statistics, clock,
                300_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE, failures, true,
                Optional.empty());
            manager = new LogCleanerManager(List.of(folder.toFile()), new ConcurrentHashMap<>(Map.of(NAME, log)), failures);
            cleaner = new Cleaner(0, new SkimpyOffsetMap(workload.get("dedupe_buffer_bytes").asInt(), "MD5"), 1 << 16,
                LARGEST_BATCH, 0.9, new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "entries", clock), clock,
                partition -> { });
        }

        ObjectNode replay() throws Exception {
            ObjectNode report = JSON.createObjectNode().set("id", workload.get("id"));
            ArrayNode cleanings = report.putArray("cleanings");
            for (JsonNode step : workload.get("steps")) {
                clock.nowMs = step.get("now").asLong();
                log.updateConfig(whileAppending);
                for (JsonNode segment : step.get("segments")) {
                    rollIfFilled();
                    for (JsonNode record : segment) {
                        append(record);
                    }
                }
                if (!workload.get("active").asBoolean()) {
                    rollIfFilled();
                }
                log.updateHighWatermark(log.logEndOffset());
                log.updateConfig(whileCleaning);
                cleanings.add(clean());
            }
            return report;
        }

        private void rollIfFilled() throws IOException {
            if (log.activeSegment().size() > 0) {
                log.roll();
            }
        }

        private void append(JsonNode record) throws IOException {
            long offset = record.get("offset").asLong();
            long end = log.logEndOffset();
            long timestamp = record.get("timestamp").asLong();
            JsonNode producer = record.get("producer");
            if (offset < end || (offset > end && !producer.isNull())) {
                throw new IllegalStateException("offset " + offset + " can't be appended at " + end);
            }
            if (offset > end) { // only a replica takes offsets as they are
                log.appendAsFollower(MemoryRecords.withRecords(offset, Compression.NONE, 0, simple(record)), 0);
                return;
            }
            if (producer.isNull()) {
                log.appendAsLeader(MemoryRecords.withRecords(Compression.NONE, simple(record)), 0);
                return;
            }
            long id = producer.asLong();
            short epoch = 0;
            if (record.hasNonNull("marker")) {
                ControlRecordType type = ControlRecordType.valueOf(record.get("marker").asText());
                MemoryRecords marker =
                    MemoryRecords.withEndTransactionMarker(timestamp, id, epoch, new EndTransactionMarker(type, 0));
                log.appendAsLeader(marker, 0, AppendOrigin.COORDINATOR, RequestLocal.noCaching(),
                    VerificationGuard.SENTINEL, (short) 1);
                return;
            }
            int sequence = sequences.merge(id, 1, Integer::sum) - 1;
            log.appendAsLeader(
                MemoryRecords.withTransactionalRecords(Compression.NONE, id, epoch, sequence, simple(record)), 0);
        }

        private static SimpleRecord simple(JsonNode record) {
            return new SimpleRecord(record.get("timestamp").asLong(), bytes(record.get("key")), bytes(record.get("value")));
        }

        /** Clean until the manager finds nothing: once, or more often where the offset map was too small. */
        private ObjectNode clean() throws Exception {
            ObjectNode report = JSON.createObjectNode().put("now", clock.nowMs);
            ArrayNode passes = report.putArray("passes");
            for (int pass = 0; pass < PASSES; pass++) {
                Optional<LogToClean> found = manager.grabFilthiestCompactedLog(clock, new PreCleanStats());
                if (found.isEmpty()) {
                    break;
                }
                LogToClean dirty = found.get();
                Map.Entry<Long, CleanerStats> cleaned = cleaner.doClean(dirty, clock.nowMs);
                manager.doneCleaning(NAME, folder.toFile(), cleaned.getKey());
                passes.addObject().put("from", dirty.firstDirtyOffset()).put("to", cleaned.getKey())
                    .put("null_keys", cleaned.getValue().invalidMessagesRead());
            }
            report.put("checkpoint", manager.allCleanerCheckpoints().getOrDefault(NAME, 0L));
            report.put("log_end", log.logEndOffset()).put("last_stable", log.lastStableOffset());
            dump(report.putArray("records"), report.putArray("empty_batches"));
            return report;
        }

        private void dump(ArrayNode records, ArrayNode empty) {
            for (LogSegment segment : log.logSegments()) {
                for (RecordBatch batch : segment.log().batches()) {
                    int held = 0;
                    for (Record record : batch) {
                        ObjectNode row = records.addObject().put("offset", record.offset())
                            .put("key", text(record.key())).put("value", text(record.value()));
                        if (batch.deleteHorizonMs().isPresent()) {
                            row.put("horizon", batch.deleteHorizonMs().getAsLong());
                        }
                        held++;
                    }
                    if (held == 0) {
                        empty.add(batch.lastOffset());
                    }
                }
            }
        }

        private static byte[] bytes(JsonNode text) {
            return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
        }

        private static String text(ByteBuffer buffer) {
            if (buffer == null) {
                return null;
            }
            byte[] content = new byte[buffer.remaining()];
            buffer.duplicate().get(content);
            return Base64.getEncoder().encodeToString(content);
        }

        @Override
        public void close() {
            manager.removeMetrics();
            try {
                log.close();
                statistics.close();
            } catch (RuntimeException problem) {
                throw new UncheckedIOException(new IOException("closing " + folder, problem));
            }
        }
    }
}
