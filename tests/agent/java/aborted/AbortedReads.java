package cleanerd.judge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogSegments;

/**
 * A read_committed read by Kafka 4.3's own classes, in the middle of which Kafka's own swap happens. The swap comes after the
 * read of a segment with aborted data, and before the search of the later segments for the transaction's entry. No lock
 * separates the two. Prints the replaced segments, and whether the read returns the aborted transaction.
 */
final class AbortedReads {
    private static final TopicPartition NAME = new TopicPartition("t", 0);
    private static final LogConfig CONFIG = new LogConfig(Map.of("cleanup.policy", "compact"));
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    private static final long PRODUCER = 7;

    /** A reader's call, and the event before it. */
    private static final class Interrupted extends LogSegments {
        private Swap next = () -> { };

        Interrupted() {
            super(NAME);
        }

        @Override
        public Collection<LogSegment> higherSegments(long base) {
            Swap swap = next;
            next = () -> { };
            try {
                swap.run();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
            return super.higherSegments(base);
        }
    }

    private interface Swap {
        void run() throws IOException;
    }

    private final Path directory;
    private final KafkaScheduler scheduler;
    private final Interrupted segments = new Interrupted();
    private final LogSegment data;
    private final LogSegment marker;

    private AbortedReads(Path directory, KafkaScheduler scheduler) throws IOException {
        this.directory = Files.createDirectories(directory.resolve(NAME.toString()));
        this.scheduler = scheduler;
        SimpleRecord record = new SimpleRecord(1000, "k".getBytes(), "v".getBytes());
        data = segment(0, "");
        data.append(1, MemoryRecords.withTransactionalRecords(0, Compression.NONE, PRODUCER, (short) 0, 0, 0, record, record));
        marker = withMarker("");
        marker.updateTxnIndex(new CompletedTxn(PRODUCER, 0, 2, true), 2);
        LogSegment last = segment(3, "");
        last.append(3, MemoryRecords.withRecords(3, Compression.NONE, 0, record));
        segments.add(data);
        segments.add(marker);
        segments.add(last);
    }

    private LogSegment segment(long base, String suffix) throws IOException {
        return LogSegment.open(directory.toFile(), base, CONFIG, Time.SYSTEM, false, 0, false, suffix);
    }

    private LogSegment withMarker(String suffix) throws IOException {
        LogSegment segment = segment(suffix.isEmpty() ? 2 : 0, suffix);
        appendMarker(segment);
        return segment;
    }

    private static void appendMarker(LogSegment segment) throws IOException {
        EndTransactionMarker abort = new EndTransactionMarker(ControlRecordType.ABORT, 0);
        segment.append(2, MemoryRecords.withEndTransactionMarker(2, 1000, 0, PRODUCER, (short) 0, abort));
    }

    private void replace(LogSegment output, LogSegment... sources) throws IOException {
        output.flush();
        LocalLog.replaceSegments(segments, List.of(output), List.of(sources), directory.toFile(), NAME, CONFIG, scheduler,
                FAILURES, "", false);
    }

    private void merge() throws IOException {
        replace(withMarker(".cleaned"), data, marker);
    }

    /** Each source has an output of its own; the second has the entry or not. */
    private void oneByOne(boolean withEntry) throws IOException {
        replace(segment(0, ".cleaned"), data);
        LogSegment output = segment(2, ".cleaned");
        appendMarker(output);
        if (withEntry) {
            output.updateTxnIndex(new CompletedTxn(PRODUCER, 0, 2, true), 2);
        }
        replace(output, marker);
    }

    private boolean told() throws IOException {
        LocalLog log = new LocalLog(directory.toFile(), CONFIG, segments, 0, new LogOffsetMetadata(4), scheduler, Time.SYSTEM,
                NAME, FAILURES);
        FetchDataInfo read = log.read(0, 1 << 20, true, new LogOffsetMetadata(4, 3, 0), true);
        boolean isData = read.records.batches().iterator().next().isTransactional()
                && !read.records.batches().iterator().next().isControlBatch();
        if (!isData) {
            throw new IllegalStateException("the data was not read");
        }
        return read.abortedTransactions.orElseThrow().stream().anyMatch(each -> each.producerId() == PRODUCER);
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Path place = Path.of(arguments[0]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        AbortedReads nothing = new AbortedReads(place.resolve("nothing"), scheduler);
        System.out.println("nothing=" + nothing.told());
        AbortedReads merged = new AbortedReads(place.resolve("merged"), scheduler);
        merged.segments.next = merged::merge;
        System.out.println("both by one=" + merged.told());
        for (boolean withEntry : new boolean[] {true, false}) {
            AbortedReads each = new AbortedReads(place.resolve("each-" + withEntry), scheduler);
            each.segments.next = () -> each.oneByOne(withEntry);
            System.out.println((withEntry ? "one by one, with the entry=" : "one by one, without it=") + each.told());
        }
        System.exit(0);
    }
}
