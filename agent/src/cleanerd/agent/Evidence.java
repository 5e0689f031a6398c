package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Compares a plan's witnesses with the broker's segments (A-14, U-3). It checks each file once, without the log's lock.
 * Later changes by the broker show in its objects. Cleaning and retention remove a segment's object from the log. A
 * truncation keeps the object of the segment that it cuts, but removes the segment that was active when the proof began.
 * So the work under the lock does not grow with the log (U-36).
 */
final class Evidence {
    /**
     * A listing is valid for this many times as long as it took, because 50,000 names take the broker 50 ms and 5 MB.
     * Changes of these segments in that time show in the broker's objects.
     */
    private static final int LISTING_TIMES = 20;

    private final BrokerLog log;
    private final List<SegmentFacts> expected;
    private final Set<Long> sources = new HashSet<>();
    private List<BrokerSegment> proven;
    private BrokerSegment guard; // the active segment when the proof began
    private long bound;
    private long end;
    private long listedUntilNanos;
    private boolean listed;

    /** {@code witnesses}: every segment that the decision depends on, ascending, as cleanerd read it. */
    Evidence(BrokerLog log, List<SegmentFacts> witnesses) {
        this.log = log;
        this.expected = new ArrayList<>(witnesses);
    }

    boolean isOf(BrokerLog other) {
        return log.log == other.log;
    }

    /** Sets the groups of a request; bad_plan unless their sources are neighbouring witnesses. */
    void use(SwapRequest request) throws Refusal {
        sources.clear();
        end = request.groups().get(request.groups().size() - 1).end();
        for (Group group : request.groups()) {
            group.sources().forEach(source -> sources.add(source.base()));
            int row = rowOf(group.base());
            for (SegmentFacts source : group.sources()) {
                if (row < 0 || row >= expected.size() || !expected.get(row).equals(source)) {
                    throw new Refusal("bad_plan", "source " + source.base() + " of group " + group.base()
                            + " is not a witness, or is not next to the group's other sources");
                }
                row++;
            }
            if (row < expected.size() && expected.get(row).base() != group.end()) {
                throw new Refusal("bad_plan", "the witness after group " + group.base() + " does not begin at the group's end, "
                        + group.end());
            }
        }
    }

    /** Checks all segments, as cheaply as possible, and the end of the groups. The caller must not hold the log's monitor. */
    void renew() throws IOException, Refusal {
        if (proven == null || !guardIsInLog() || !objectsAreInLog()) {
            prove();
        }
        if (end > bound || end > expected.get(expected.size() - 1).base() && end != bound) {
            throw new Refusal("source_changed", "segment " + bound + " follows the witnesses, the plan expects " + end);
        }
    }

    /**
     * Whether {@code group} is unchanged since {@link #renew}. The caller holds the monitor and has paused the broker's
     * cleaner. So only a truncation or the log's deletion can have happened in between.
     */
    boolean holdsFor(Group group) throws IOException {
        List<BrokerSegment> first = log.segments(expected.get(0).base(), expected.get(0).base() + 1);
        return guardIsInLog() && same(first, proven.subList(0, 1))
                && same(log.segments(group.base(), group.end()), sourcesOf(group));
    }

    /** Refuses while files of an incomplete swap exist (U-34). */
    void requireNoSwap(CleanedFiles files) throws IOException, Refusal {
        long start = System.nanoTime();
        if (listed && start - listedUntilNanos < 0) {
            return;
        }
        files.requireNoSwap();
        long now = System.nanoTime();
        listedUntilNanos = now + LISTING_TIMES * (now - start);
        listed = true;
    }

    /** After an incomplete swap: lists the directory before the next one, whose names its files may block. */
    void forgetListing() {
        listed = false;
    }

    /** The broker's objects of a group's sources. */
    List<BrokerSegment> sourcesOf(Group group) {
        int row = rowOf(group.base());
        return List.copyOf(proven.subList(row, row + group.sources().size()));
    }

    /** The end of the witnesses: the base offset of the segment after the last one. */
    long bound() {
        return bound;
    }

    /** The expected facts of the last witness that begins below {@code offset}; null if none does. */
    SegmentFacts below(long offset) {
        SegmentFacts last = null;
        for (SegmentFacts facts : expected) {
            last = facts.base() < offset ? facts : last;
        }
        return last;
    }

    /** Replaces the group's sources by {@code output}. */
    void swapped(Group group, BrokerSegment output, SegmentFacts facts) {
        int row = rowOf(group.base());
        int end = row + group.sources().size();
        proven.subList(row, end).clear();
        proven.add(row, output);
        expected.subList(row, end).clear();
        expected.add(row, facts);
        group.sources().forEach(source -> sources.remove(source.base()));
    }

    private void prove() throws IOException, Refusal {
        listed = false;
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " was deleted, moved or created again");
        }
        List<BrokerSegment> all = log.segments();
        BrokerSegment active = log.activeOf(all); // before any file is read, because a later truncation removes it
        long last = expected.get(expected.size() - 1).base();
        int start = startIn(all);
        for (int i = 0; i < expected.size(); i++) {
            checkSegment(start + i < all.size() ? all.get(start + i) : null, i);
        }
        if (active.base() <= last || start + expected.size() >= all.size()) {
            throw new Refusal("not_sealed", "segment " + last + " is the active segment");
        }
        proven = new ArrayList<>(all.subList(start, start + expected.size()));
        bound = all.get(start + expected.size()).base();
        guard = active;
    }

    private int startIn(List<BrokerSegment> all) throws IOException, Refusal {
        long first = expected.get(0).base();
        for (int i = 0; i < all.size(); i++) {
            if (all.get(i).base() == first) {
                return i;
            }
        }
        throw gone(first);
    }

    private void checkSegment(BrokerSegment found, int row) throws IOException, Refusal {
        SegmentFacts wanted = expected.get(row);
        if (found == null || found.base() != wanted.base()) {
            throw gone(wanted.base());
        }
        SegmentFacts facts;
        try {
            facts = found.facts();
        } catch (NoSuchFileException e) {
            throw gone(wanted.base());
        }
        boolean finalName = found.file().getFileName().toString().equals(Group.brokerName(wanted.base(), "log"));
        if (!finalName || !facts.equals(wanted)) {
            throw new Refusal(sources.contains(wanted.base()) ? "source_changed" : "evidence_changed",
                    "segment " + wanted.base() + " changed since cleanerd read it: " + Json.write(facts.toJson()));
        }
    }

    private Refusal gone(long base) {
        return new Refusal(sources.contains(base) ? "source_gone" : "evidence_changed", "segment " + base
                + " is gone, or another segment is before it");
    }

    private boolean guardIsInLog() throws IOException {
        long base = guard.base();
        return same(log.segments(base, base + 1), List.of(guard));
    }

    /** Reads the broker's map once. Windows of it would be copied under the log's lock, one after the other. */
    private boolean objectsAreInLog() throws IOException {
        List<Object> all = log.segmentObjects();
        Object first = proven.get(0).segment;
        int start = 0;
        while (start < all.size() && all.get(start) != first) {
            start++;
        }
        if (start + proven.size() > all.size()) {
            return false;
        }
        for (int i = 0; i < proven.size(); i++) {
            if (all.get(start + i) != proven.get(i).segment) {
                return false;
            }
        }
        return true;
    }

    /** Whether both are the same objects of the broker. */
    static boolean same(List<BrokerSegment> found, List<BrokerSegment> wanted) {
        if (found.size() != wanted.size()) {
            return false;
        }
        for (int i = 0; i < found.size(); i++) {
            if (found.get(i).segment != wanted.get(i).segment) {
                return false;
            }
        }
        return true;
    }

    /** The row of the witness with this base offset, -1 if there is none. */
    private int rowOf(long base) {
        int low = 0;
        int high = expected.size() - 1;
        while (low <= high) {
            int middle = (low + high) >>> 1;
            long found = expected.get(middle).base();
            if (found == base) {
                return middle;
            }
            if (found < base) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return -1;
    }
}
