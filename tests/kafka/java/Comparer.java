package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.Set;

/**
 * {@code compare}: two directories batch by batch and record by record. Segment borders, sizes, checksums and compressed bytes
 * do not count; everything that a consumer, a follower or the next cleaning can see does.
 *
 * <p>cleanerd's result may have one addition, by U-13: an empty batch that ends one of its segments. If Kafka keeps one with
 * which an earlier release of cleanerd closed a group, cleanerd may have removed its time.
 */
final class Comparer {
    private final ArrayNode differences;
    private final ArrayNode additions;
    private final int limit;
    /** Last offsets of the batches that end a segment of the source; null when no source was named. */
    private final Set<Long> sourceEnds;

    private long batches;
    private long records;

    private Comparer(ObjectNode answer, int limit, Set<Long> sourceEnds) {
        this.differences = answer.putArray("differences");
        this.additions = answer.putArray("additions");
        this.limit = limit;
        this.sourceEnds = sourceEnds;
    }

    static void run(JsonNode command, ObjectNode answer) throws IOException {
        Set<Long> ends = null;
        if (command.hasNonNull("source")) {
            ends = new HashSet<>();
            try (LogReader reader = new LogReader(new File(command.get("source").asText()))) {
                while (reader.hasNext()) {
                    BatchView view = reader.next();
                    if (view.last) {
                        ends.add(view.batch.lastOffset());
                    }
                }
            }
        }
        Comparer comparer = new Comparer(answer, command.path("limit").asInt(20), ends);
        try (LogReader theirs = new LogReader(new File(command.get("theirs").asText()));
                LogReader ours = new LogReader(new File(command.get("ours").asText()))) {
            comparer.compare(theirs, ours);
        }
        answer.put("batches", comparer.batches);
        answer.put("records", comparer.records);
    }

    private void compare(LogReader theirs, LogReader ours) {
        BatchView their = step(theirs);
        BatchView our = step(ours);
        while ((their != null || our != null) && differences.size() < limit) {
            if (our == null || their != null && their.batch.baseOffset() < our.batch.baseOffset()) {
                differ(range(their), "only in theirs" + (their.isEmpty() ? " (empty)" : ""));
                their = step(theirs);
            } else if (their == null || our.batch.baseOffset() < their.batch.baseOffset()) {
                extra(our);
                our = step(ours);
            } else {
                pair(their, our);
                their = step(theirs);
                our = step(ours);
            }
        }
    }

    private static BatchView step(LogReader reader) {
        return reader.hasNext() ? reader.next() : null;
    }

    private void extra(BatchView our) {
        if (!our.isEmpty()) {
            differ(range(our), "only in ours");
        } else if (!our.last) {
            differ(range(our), "only in ours: empty, but not the last batch of a segment");
        } else if (sourceEnds != null && !sourceEnds.contains(our.batch.lastOffset())) {
            differ(range(our), "only in ours: empty, but no segment of the source ends with it");
        } else if (our.problem() != null) {
            differ(range(our), "ours: " + our.problem());
        } else {
            additions.addArray().add(our.batch.baseOffset()).add(our.batch.lastOffset());
        }
    }

    private void pair(BatchView their, BatchView our) {
        batches++;
        String where = range(their);
        same(where, "problem", their.problem(), our.problem());
        if (their.problem() != null || our.problem() != null) {
            return;
        }
        same(where, "last offset", their.batch.lastOffset(), our.batch.lastOffset());
        same(where, "magic", their.batch.magic(), our.batch.magic());
        same(where, "attributes", their.attributes(), our.attributes());
        same(where, "leader epoch", their.batch.partitionLeaderEpoch(), our.batch.partitionLeaderEpoch());
        same(where, "base timestamp", their.baseTimestamp(), our.baseTimestamp());
        if (!isMended(their, our)) {
            same(where, "max timestamp", their.batch.maxTimestamp(), our.batch.maxTimestamp());
        }
        same(where, "producer id", their.batch.producerId(), our.batch.producerId());
        same(where, "producer epoch", their.batch.producerEpoch(), our.batch.producerEpoch());
        same(where, "base sequence", their.batch.baseSequence(), our.batch.baseSequence());
        List<BatchView.RecordView> theirRecords = their.records();
        List<BatchView.RecordView> ourRecords = our.records();
        same(where, "count", theirRecords.size(), ourRecords.size());
        for (int i = 0; i < Math.min(theirRecords.size(), ourRecords.size()) && differences.size() < limit; i++) {
            record(where, theirRecords.get(i), ourRecords.get(i));
        }
    }

    /** Earlier releases of cleanerd closed groups with an empty batch of time 0; beside others it has no time now (U-13). */
    private static boolean isMended(BatchView their, BatchView our) {
        boolean closing = their.isEmpty() && our.isEmpty() && our.last;
        return closing && their.batch.maxTimestamp() == 0 && our.batch.maxTimestamp() == -1;
    }

    private void record(String batch, BatchView.RecordView their, BatchView.RecordView our) {
        records++;
        String where = batch + " record " + their.offset();
        same(where, "offset", their.offset(), our.offset());
        same(where, "timestamp", their.timestamp(), our.timestamp());
        same(where, "key", text(their.key()), text(our.key()));
        same(where, "value", text(their.value()), text(our.value()));
        same(where, "headers", text(their.headers()), text(our.headers()));
    }

    private void same(String where, String what, Object their, Object our) {
        if (!Objects.equals(their, our)) {
            differ(where, what + ": theirs " + brief(their) + ", ours " + brief(our));
        }
    }

    private void differ(String where, String what) {
        if (differences.size() < limit) {
            differences.add(where + ": " + what);
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 80 ? text : text.substring(0, 77) + "... (" + text.length() + " characters)";
    }

    private static String range(BatchView view) {
        return view.batch.baseOffset() + "-" + view.batch.lastOffset();
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : "x" + HexFormat.of().formatHex(bytes);
    }

    private static String text(BatchView.HeaderView[] headers) {
        return Arrays.stream(headers).map(h -> h.key() + "=" + text(h.value())).toList().toString();
    }
}
