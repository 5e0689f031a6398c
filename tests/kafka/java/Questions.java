package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;

/** The queries for all logs of a {@code behave}, so that answers can be compared: at, and just beside, all of their values. */
final class Questions {
    private static final int MOST_TIMES = 150;
    private static final int MOST_RETENTIONS = 40;
    private static final int MOST_OFFSETS = 12;
    private static final int FEW_BATCHES = 400;

    /** Ascending: a broker returns the first record at or after each of them. */
    final List<Long> timesMs;
    /** Descending, so that one log serves all of them: each one deletes the segments of the previous one, and more. */
    final List<Long> retentionsMs;
    /** Descending for the same reason. */
    final List<Long> retentionBytes;
    /** Ascending. */
    final List<Long> offsets;

    final List<Integer> fetchBytes;

    Questions(Collection<LogFacts> logs, long nowMs) {
        TreeSet<Long> known = new TreeSet<>();
        TreeSet<Long> edges = new TreeSet<>();
        TreeSet<Long> sizes = new TreeSet<>();
        long batches = 0;
        for (LogFacts log : logs) {
            log.times(known);
            log.offsets(edges);
            sizes.add(log.bytes);
            sizes.add(Math.max(0, log.bytes - 1));
            sizes.add(log.bytes / 2);
            sizes.add(log.bytes / 4);
            batches += log.segments.stream().mapToLong(each -> each.batches.size()).sum();
        }
        TreeSet<Long> times = new TreeSet<>(List.of(0L, 1L));
        TreeSet<Long> retentions = new TreeSet<>(List.of(0L));
        for (long time : known) {
            for (long beside = time - 1; beside <= time + 1 && beside >= time - 1; beside++) {
                add(times, beside);
            }
            // Kafka deletes segments older than retention.ms: one of this time is deleted at the first value, kept at the second.
            if (time <= nowMs) {
                add(retentions, nowMs - time - 1);
                add(retentions, nowMs - time);
            }
        }
        timesMs = spread(times, MOST_TIMES);
        retentionsMs = spread(retentions.descendingSet(), MOST_RETENTIONS);
        retentionBytes = new ArrayList<>(sizes.descendingSet());
        offsets = spread(edges, MOST_OFFSETS);
        fetchBytes = batches <= FEW_BATCHES ? List.of(1, 500, 1 << 20) : List.of(1 << 14, 1 << 20);
    }

    void write(ObjectNode into) {
        list(into.putArray("times_ms"), timesMs);
        list(into.putArray("retentions_ms"), retentionsMs);
        list(into.putArray("retention_bytes"), retentionBytes);
        list(into.putArray("offsets"), offsets);
    }

    private static void add(TreeSet<Long> set, long value) {
        if (value >= 0) { // negative values are special times of ListOffsets: earliest, latest, largest
            set.add(value);
        }
    }

    private static void list(ArrayNode into, List<Long> values) {
        values.forEach(into::add);
    }

    /** All values, or an even selection of this size with the first and the last. */
    private static List<Long> spread(Collection<Long> values, int most) {
        List<Long> all = new ArrayList<>(values);
        if (all.size() <= most) {
            return all;
        }
        List<Long> some = new ArrayList<>();
        for (int i = 0; i < most; i++) {
            some.add(all.get((int) ((long) i * (all.size() - 1) / (most - 1))));
        }
        return some;
    }
}
