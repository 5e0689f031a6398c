package cleanerd.agent;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * Measures how long the agent holds the broker's locks of one kind, since it was loaded. {@code info} reports it.
 * Appends to a partition wait for its log's lock, and so does the broker's thread that handles them.
 */
final class Holds {
    /** Upper bounds of the histogram; the daemon exports the same ones. */
    private static final long[] BOUNDS_US = {500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 2_000_000};

    private final AtomicLongArray counts = new AtomicLongArray(BOUNDS_US.length + 1);
    private final AtomicLong sumNanos = new AtomicLong();
    private final AtomicLong longestNanos = new AtomicLong();

    /** Records the end of a hold that began at {@code startNanos}. Takes no memory, because its lack may end a hold. */
    void ended(long startNanos) {
        long nanos = System.nanoTime() - startNanos;
        int row = 0;
        while (row < BOUNDS_US.length && nanos > BOUNDS_US[row] * 1000) {
            row++;
        }
        counts.incrementAndGet(row);
        sumNanos.addAndGet(nanos);
        for (long longest = longestNanos.get(); nanos > longest; longest = longestNanos.get()) {
            longestNanos.compareAndSet(longest, nanos);
        }
    }

    Map<String, Object> toJson() {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("bounds_us", listed(LongStream.of(BOUNDS_US)));
        json.put("counts", listed(LongStream.range(0, counts.length()).map(row -> counts.get((int) row))));
        json.put("sum_us", sumNanos.get() / 1000);
        json.put("longest_us", longestNanos.get() / 1000);
        return json;
    }

    private static List<Long> listed(LongStream values) {
        return values.boxed().collect(Collectors.toUnmodifiableList());
    }
}
