package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** The facts in a log's bytes, without any index: segments, batches, and every record's offset and time. */
final class LogFacts {
    final List<SegmentFacts> segments = new ArrayList<>();
    final long bytes;

    /** {@code batches} and {@code records} are as {@link #write} lists them. */
    static final class SegmentFacts {
        final long base;
        final long size;
        final long modifiedMs;
        final List<long[]> batches = new ArrayList<>();
        final List<long[]> records = new ArrayList<>();

        SegmentFacts(long base, File log) {
            this.base = base;
            size = log.length();
            modifiedMs = log.lastModified();
        }
    }

    LogFacts(File directory) throws IOException {
        long sum = 0;
        for (Map.Entry<Long, File> segment : Directories.segments(directory).entrySet()) {
            SegmentFacts facts = new SegmentFacts(segment.getKey(), segment.getValue());
            sum += facts.size;
            segments.add(facts);
            try (LogReader reader = new LogReader(segment.getKey(), segment.getValue())) {
                while (reader.hasNext()) {
                    add(facts, reader.next());
                }
            }
        }
        bytes = sum;
    }

    private static void add(SegmentFacts facts, BatchView view) {
        List<BatchView.RecordView> records = view.records();
        boolean control = view.batch.isControlBatch();
        facts.batches.add(new long[] {
            view.batch.baseOffset(), view.batch.lastOffset(), view.batch.maxTimestamp(), records.size(), control ? 1 : 0
        });
        for (BatchView.RecordView record : records) {
            // a broker searches a time only in batches whose header includes it
            long found = Math.min(record.timestamp(), view.batch.maxTimestamp());
            facts.records.add(new long[] {record.offset(), record.timestamp(), found, control ? 1 : 0});
        }
    }

    /** Every time in the log, those of its files included. */
    void times(TreeSet<Long> into) {
        for (SegmentFacts segment : segments) {
            into.add(segment.modifiedMs);
            segment.batches.forEach(batch -> into.add(batch[2]));
            segment.records.forEach(record -> into.add(record[1]));
        }
    }

    /** The edges of all batches, and the offsets beside them. */
    void offsets(TreeSet<Long> into) {
        for (SegmentFacts segment : segments) {
            into.add(segment.base);
            for (long[] batch : segment.batches) {
                into.add(batch[0]);
                into.add(batch[1]);
                into.add(batch[1] + 1);
            }
        }
    }

    /**
     * Flat. A batch is base, last offset, largest timestamp, number of records, 1 if it is a control batch; a record is offset,
     * timestamp, the largest time that a broker finds it for, 1 if it is a marker.
     */
    void write(ArrayNode into) {
        for (SegmentFacts segment : segments) {
            ObjectNode node = into.addObject();
            node.put("base", segment.base);
            node.put("size", segment.size);
            node.put("modified_ms", segment.modifiedMs);
            flat(node.putArray("batches"), segment.batches);
            flat(node.putArray("records"), segment.records);
        }
    }

    private static void flat(ArrayNode into, List<long[]> rows) {
        for (long[] row : rows) {
            for (long value : row) {
                into.add(value);
            }
        }
    }
}
