package cleanerd.judge;

import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** The real UnifiedLog and Cleaner of Kafka 4.x behind the few calls that the judges need. */
final class KafkaLog {
    private static final Scheduler SCHEDULER = new InlineScheduler();
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    private final UnifiedLog log;

    private KafkaLog(UnifiedLog log) {
        this.log = log;
    }

    /** Loads the directory as a starting broker does. */
    static KafkaLog open(OpenOptions options) throws IOException {
        return new KafkaLog(UnifiedLog.create(
                options.directory(),
                logConfig(options.config()),
                options.logStartOffset(),
                options.recoveryPoint(),
                SCHEDULER,
                STATS,
                new FixedTime(options.nowMs()),
                Integer.MAX_VALUE,
                new ProducerStateManagerConfig(options.producerExpirationMs(), false),
                600_000,
                new LogDirFailureChannel(1),
                options.cleanShutdown(),
                options.topicId(),
                new ConcurrentHashMap<>(),
                false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER));
    }

    private static LogConfig logConfig(Map<String, String> settings) {
        Map<String, String> config = new HashMap<>(settings);
        // 4.x refuses a topic with segment.bytes below 1 MiB; the internal setting has no such limit
        config.put("internal.segment.bytes", config.remove("segment.bytes"));
        return new LogConfig(config);
    }

    void append(MemoryRecords records) {
        log.appendAsFollower(records, Integer.MAX_VALUE);
    }

    void roll(long baseOffset) throws IOException {
        log.roll(Optional.of(baseOffset));
    }

    long logStartOffset() {
        return log.logStartOffset();
    }

    long logEndOffset() {
        return log.logEndOffset();
    }

    /** Base of the active segment: no cleaner goes further. */
    long activeBaseOffset() {
        return log.activeSegment().baseOffset();
    }

    void setHighWatermark(long offset) throws IOException {
        log.updateHighWatermark(offset);
    }

    long lastStableOffset() {
        return log.lastStableOffset();
    }

    Iterable<LogSegment> segments() {
        return log.logSegments();
    }

    /** The first record at or after a time, or for one of the special times of ListOffsets; null for none. */
    FileRecords.TimestampAndOffset offsetForTime(long time) {
        return log.fetchOffsetByTimestamp(time, Optional.empty())
                .timestampAndOffsetOpt()
                .orElse(null);
    }

    /** The result of one fetch, with its aborted transactions. */
    record Fetched(Records records, List<AbortedTransaction> aborted) {}

    Fetched read(long offset, int maxBytes, boolean committed) throws IOException {
        FetchIsolation isolation = committed ? FetchIsolation.TXN_COMMITTED : FetchIsolation.LOG_END;
        FetchDataInfo read = log.read(offset, maxBytes, isolation, true);
        return new Fetched(read.records, read.abortedTransactions.orElse(List.of()));
    }

    void configure(Map<String, String> config) {
        log.updateConfig(logConfig(config));
    }

    int deleteOldSegments() throws IOException {
        return log.deleteOldSegments();
    }

    /** As DeleteRecords does it. */
    void moveLogStart(long offset) {
        log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
    }

    Map<Long, ProducerStateEntry> producers() {
        return log.producerStateManager().activeProducers();
    }

    static int lastSequence(ProducerStateEntry entry) {
        BatchMetadata last = last(entry);
        return last == null ? -1 : last.lastSeq();
    }

    static int lastOffsetDelta(ProducerStateEntry entry) {
        BatchMetadata last = last(entry);
        return last == null ? 0 : last.offsetDelta();
    }

    private static BatchMetadata last(ProducerStateEntry entry) {
        BatchMetadata last = null;
        for (BatchMetadata batch : entry.batchMetadata()) {
            last = batch;
        }
        return last;
    }

    CleanAnswer clean(CleanRequest request, long nowMs) throws Exception {
        FixedTime time = new FixedTime(nowMs);
        Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "judge", "bytes", time);
        Cleaner cleaner = new Cleaner(
                0,
                new SkimpyOffsetMap(request.mapBytes(), "MD5"),
                request.ioBufferBytes(),
                request.maxIoBufferBytes(),
                request.loadFactor(),
                unthrottled,
                time,
                partition -> {});
        LogToClean toClean = new LogToClean(log, request.dirty(), request.bound(), true);
        Stopwatch watch = new Stopwatch();
        Map.Entry<Long, CleanerStats> result = cleaner.clean(toClean);
        Stopwatch.Reading cost = watch.read();
        CleanerStats stats = result.getValue();
        return new CleanAnswer(
                result.getKey(),
                stats.bytesRead(),
                stats.bytesWritten(),
                stats.mapMessagesRead(),
                stats.messagesRead(),
                stats.invalidMessagesRead(),
                stats.messagesWritten(),
                stats.bufferUtilization(),
                cost);
    }

    /** A clean shutdown: flushed, indexes trimmed, producer snapshot written. */
    void close() {
        log.flush(true);
        Handles.close(log);
        forget();
    }

    /** Abandons the files without changing them, like a crash. */
    void abandon() {
        Handles.letGo(log);
        forget();
    }

    /** Gauges of a log stay registered for the life of a process; a judge opens thousands of logs. */
    private void forget() {
        log.removeLogMetrics();
    }
}
