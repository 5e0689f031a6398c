package cleanerd.judge;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/** The real UnifiedLog and Cleaner of Kafka 3.9 (Scala) behind the few calls that the judges need. */
final class KafkaLog {
    private static final Scheduler SCHEDULER = new InlineScheduler();
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);

    private final UnifiedLog log;

    private KafkaLog(UnifiedLog log) {
        this.log = log;
    }

    /** Loads the directory as a starting broker does. */
    static KafkaLog open(OpenOptions options) throws IOException {
        return new KafkaLog(UnifiedLog.apply(
                options.directory(),
                new LogConfig(options.config()),
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
                Option.apply(options.topicId().orElse(null)),
                true,
                new ConcurrentHashMap<>(),
                false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER));
    }

    void append(MemoryRecords records) {
        log.appendAsFollower(records, Integer.MAX_VALUE);
    }

    void roll(long baseOffset) throws IOException {
        log.roll(Option.apply(baseOffset));
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
        Option<FileRecords.TimestampAndOffset> found = log.fetchOffsetByTimestamp(time, Option.empty());
        return found.isEmpty() ? null : found.get();
    }

    /** The result of one fetch, with its aborted transactions. */
    record Fetched(Records records, List<AbortedTransaction> aborted) {}

    Fetched read(long offset, int maxBytes, boolean committed) {
        FetchIsolation isolation = committed ? FetchIsolation.TXN_COMMITTED : FetchIsolation.LOG_END;
        FetchDataInfo read = log.read(offset, maxBytes, isolation, true);
        return new Fetched(read.records, read.abortedTransactions.orElse(List.of()));
    }

    void configure(Map<String, String> config) {
        log.updateConfig(new LogConfig(config));
    }

    int deleteOldSegments() {
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
        return last == null ? -1 : last.lastSeq;
    }

    static int lastOffsetDelta(ProducerStateEntry entry) {
        BatchMetadata last = last(entry);
        return last == null ? 0 : last.offsetDelta;
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
                partition -> BoxedUnit.UNIT);
        LogToClean toClean = new LogToClean(log.topicPartition(), log, request.dirty(), request.bound(), true);
        Stopwatch watch = new Stopwatch();
        Tuple2<Object, CleanerStats> result = cleaner.clean(toClean);
        Stopwatch.Reading cost = watch.read();
        CleanerStats stats = result._2();
        return new CleanAnswer(
                (Long) result._1(),
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
