package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.storage.internals.log.IndexEntry;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.TimeIndex;

/**
 * {@code lookups}: queries Kafka's index classes for every relevant offset and time (each batch, record and
 * entry, and one beside it) and checks that reading on from the answer finds what a scan from the start of the segment finds.
 */
final class Lookups {
    private final long base;
    private final ArrayNode problems;
    private final int limit;
    private final String name;

    // per batch
    private final List<Integer> positions = new ArrayList<>();
    private final List<Long> baseOffsets = new ArrayList<>();
    private final List<Long> lastOffsets = new ArrayList<>();
    private final List<Integer> firstRecords = new ArrayList<>();
    private final Map<Integer, Integer> batchAt = new HashMap<>();
    // per record: the largest timestamp so far
    private final List<Long> largestSoFar = new ArrayList<>();
    private final TreeSet<Long> offsets = new TreeSet<>();
    private final TreeSet<Long> times = new TreeSet<>();
    private long maxTimestamp = -1;
    private long asked;

    private Lookups(long base, String name, ArrayNode problems, int limit) {
        this.base = base;
        this.name = name;
        this.problems = problems;
        this.limit = limit;
    }

    static void run(JsonNode command, ObjectNode answer) throws IOException {
        ArrayNode problems = answer.putArray("problems");
        long asked = 0;
        long entries = 0;
        Map<Long, File> segments = Directories.segments(new File(command.get("dir").asText()));
        for (Map.Entry<Long, File> segment : segments.entrySet()) {
            Lookups lookups =
                    new Lookups(segment.getKey(), segment.getValue().getName(), problems, command.path("limit").asInt(20));
            entries += lookups.check(segment.getValue());
            asked += lookups.asked;
        }
        answer.put("asked", asked);
        answer.put("entries", entries);
    }

    private long check(File log) throws IOException {
        read(log);
        if (positions.isEmpty()) {
            return 0; // nothing to look up; Kafka creates the indexes of an empty active segment on demand
        }
        File indexFile = Directories.sibling(log, ".index");
        File timeFile = Directories.sibling(log, ".timeindex");
        if (!indexFile.exists() || !timeFile.exists()) {
            problem("an index file is missing");
            return 0;
        }
        OffsetIndex offsetIndex = new OffsetIndex(indexFile, base, -1, false);
        TimeIndex timeIndex = new TimeIndex(timeFile, base, -1, false);
        try {
            offsetEntries(offsetIndex);
            timeEntries(timeIndex);
            offsets.forEach(offset -> offsetLookup(offsetIndex, offset));
            times.forEach(time -> timeLookup(offsetIndex, timeIndex, time));
            return offsetIndex.entries() + timeIndex.entries();
        } finally {
            Handles.letGo(offsetIndex);
            Handles.letGo(timeIndex);
        }
    }

    private void read(File log) {
        long largest = Long.MIN_VALUE;
        try (LogReader reader = new LogReader(base, log)) {
            while (reader.hasNext()) {
                BatchView view = reader.next();
                batchAt.put(view.position, positions.size());
                positions.add(view.position);
                baseOffsets.add(view.batch.baseOffset());
                lastOffsets.add(view.batch.lastOffset());
                firstRecords.add(largestSoFar.size());
                around(offsets, view.batch.baseOffset());
                around(offsets, view.batch.lastOffset());
                around(times, view.batch.maxTimestamp());
                maxTimestamp = Math.max(maxTimestamp, view.batch.maxTimestamp());
                for (BatchView.RecordView record : view.records()) {
                    largest = Math.max(largest, record.timestamp());
                    largestSoFar.add(largest);
                    around(offsets, record.offset());
                    around(times, record.timestamp());
                }
            }
        }
    }

    private void offsetEntries(OffsetIndex index) {
        long previous = -1;
        int previousPosition = -1;
        for (int i = 0; i < index.entries(); i++) {
            IndexEntry entry = index.entry(i);
            around(offsets, entry.indexKey());
            Integer batch = batchAt.get((int) entry.indexValue());
            if (batch == null) {
                problem("offset index entry " + entry + " is not where a batch begins");
            } else if (entry.indexKey() < baseOffsets.get(batch) || entry.indexKey() > lastOffsets.get(batch)) {
                problem("offset index entry " + entry + " names an offset outside its batch");
            }
            if (entry.indexKey() <= previous || (int) entry.indexValue() <= previousPosition) {
                problem("offset index entry " + entry + " does not rise");
            }
            previous = entry.indexKey();
            previousPosition = (int) entry.indexValue();
        }
    }

    private void timeEntries(TimeIndex index) {
        IndexEntry previous = null;
        for (int i = 0; i < index.entries(); i++) {
            IndexEntry entry = index.entry(i);
            around(times, entry.indexKey());
            if (previous != null && (entry.indexKey() < previous.indexKey() || entry.indexValue() < previous.indexValue())) {
                problem("time index entry " + entry + " does not rise");
            }
            previous = entry;
        }
        // the broker reads a segment's largest timestamp from this entry, and skips the segment by it
        if (maxTimestamp >= 0 && (previous == null || previous.indexKey() != maxTimestamp)) {
            problem("last time index entry is " + previous + ", largest timestamp is " + maxTimestamp);
        }
    }

    private void offsetLookup(OffsetIndex index, long offset) {
        if (offset < base) {
            return;
        }
        asked++;
        int from = startOf(positionOf(index, offset), "offset " + offset);
        if (from > ceiling(lastOffsets, offset) && from > 0) {
            problem("looking up offset " + offset + " starts behind its batch");
        }
    }

    /** Like LogSegment.findOffsetByTimestamp. */
    private void timeLookup(OffsetIndex index, TimeIndex timeIndex, long time) {
        asked++;
        IndexEntry floor = timeIndex.lookup(time);
        int from = startOf(positionOf(index, Math.max(floor.indexValue(), base)), "time " + time);
        int record = ceiling(largestSoFar, time);
        if (record < largestSoFar.size() && from < firstRecords.size() && record < firstRecords.get(from)) {
            problem("looking up time " + time + " starts behind the first record of that time");
        }
    }

    private static int positionOf(OffsetIndex index, long offset) {
        return (int) ((IndexEntry) index.lookup(offset)).indexValue();
    }

    private int startOf(int position, String what) {
        if (positions.isEmpty()) {
            return 0;
        }
        Integer batch = batchAt.get(position);
        if (batch == null) {
            problem("looking up " + what + " leads to position " + position + " where no batch begins");
            return 0;
        }
        return batch;
    }

    /** Index of the first element that is at least {@code wanted} in a list that never falls; its size when there is none. */
    private static int ceiling(List<Long> rising, long wanted) {
        int low = 0;
        int high = rising.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (rising.get(middle) >= wanted) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }

    private static void around(TreeSet<Long> set, long value) {
        set.add(value - 1);
        set.add(value);
        set.add(value + 1);
    }

    private void problem(String text) {
        if (problems.size() < limit) {
            problems.add(name + ": " + text);
        }
    }
}
