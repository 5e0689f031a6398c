package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * What a plan rests on, held against the broker's segments (A-14, U-3). It is proven once, file by file and without the
 * log's lock. After that only what the broker may have done has to be noticed, and that shows in its objects: cleaning
 * and retention take a segment's object out of the log, and a truncation, which does not, takes out the segment that was
 * active when the proof began. So what is done under the lock does not grow with the log (U-36).
 */
final class Evidence {
    /**
     * Listing a directory of 50,000 names takes the broker 50 ms and 5 MB, so a listing is good for so many times as long
     * as it took. What comes in between and concerns these segments shows in the broker's objects as well.
     */
    private static final int LISTING_TIMES = 20;

    private final BrokerLog log;
    private final List<SegmentFacts> expected;
    private final Set<Long> sources = new HashSet<>();
    private List<BrokerSegment> seen;
    private BrokerSegment guard;
    private long bound;
    private long end;
    private long listAgainNanos;
    private boolean listed;

    /** {@code witnesses}: every segment that the decision rests on, ascending, as it was read. */
    Evidence(BrokerLog log, List<SegmentFacts> witnesses) {
        this.log = log;
        this.expected = new ArrayList<>(witnesses);
    }

    boolean isOf(BrokerLog other) {
        return log.log == other.log;
    }

    /** The groups of a request; bad_plan unless their sources are witnesses, and neighbours. */
    void take(SwapRequest request) throws Refusal {
        sources.clear();
        end = request.groups().get(request.groups().size() - 1).end();
        for (Group group : request.groups()) {
            group.sources().forEach(source -> sources.add(source.base()));
            int place = placeOf(group.base());
            for (SegmentFacts source : group.sources()) {
                if (place < 0 || place >= expected.size() || !expected.get(place).equals(source)) {
                    throw new Refusal("bad_plan", "source " + source.base() + " is not among the witnesses as it is, or "
                            + "there is another one between the sources of group " + group.base());
                }
                place++;
            }
            if (place < expected.size() && expected.get(place).base() != group.end()) {
                throw new Refusal("bad_plan", "the witness after group " + group.base() + " is not its end");
            }
        }
    }

    /**
     * Makes sure of all segments, as cheaply as possible, and of where the groups end. Not to be called with the log's monitor held.
     */
    void renew() throws IOException, Refusal {
        if (seen == null || !guardIsThere() || !objectsAreThere()) {
            prove();
        }
        if (end > bound || end > expected.get(expected.size() - 1).base() && end != bound) {
            throw new Refusal("source_changed", "segment " + bound + " follows the evidence, not " + end);
        }
    }

    /**
     * Whether all is as {@link #renew} left it, for the group that is to be swapped now. To be called with the monitor
     * held and the broker's cleaner paused, so that only a truncation or the end of the log could have come in between.
     */
    boolean holdsFor(Group group) throws IOException {
        List<BrokerSegment> first = log.segments(expected.get(0).base(), expected.get(0).base() + 1);
        return guardIsThere() && same(first, seen.subList(0, 1))
                && same(log.segments(group.base(), group.end()), sourcesOf(group));
    }

    /** No swap begins beside one that is in doubt (U-34). */
    void requireNoSwap(CleanedFiles files) throws IOException, Refusal {
        long start = System.nanoTime();
        if (listed && start - listAgainNanos < 0) {
            return;
        }
        files.requireNoSwap();
        long now = System.nanoTime();
        listAgainNanos = now + LISTING_TIMES * (now - start);
        listed = true;
    }

    /** A swap of ours was not finished: its files stand in the way of the next one. */
    void listAgain() {
        listed = false;
    }

    /** The broker's objects of a group's sources. */
    List<BrokerSegment> sourcesOf(Group group) {
        int place = placeOf(group.base());
        return List.copyOf(seen.subList(place, place + group.sources().size()));
    }

    /** Where the evidence ends: the base offset of the segment after it. */
    long bound() {
        return bound;
    }

    /** The last segment that begins below {@code offset}, as it must be; null: there is none. */
    SegmentFacts below(long offset) {
        SegmentFacts last = null;
        for (SegmentFacts facts : expected) {
            last = facts.base() < offset ? facts : last;
        }
        return last;
    }

    /** From now on {@code output} stands in place of the group's sources. */
    void swapped(Group group, BrokerSegment output, SegmentFacts facts) {
        int place = placeOf(group.base());
        int end = place + group.sources().size();
        seen.subList(place, end).clear();
        seen.add(place, output);
        expected.subList(place, end).clear();
        expected.add(place, facts);
        group.sources().forEach(source -> sources.remove(source.base()));
    }

    private void prove() throws IOException, Refusal {
        listed = false;
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " is another log by now");
        }
        List<BrokerSegment> all = log.segments();
        BrokerSegment active = log.activeOf(all); // before any file is looked at: a truncation from now on takes it along
        long last = expected.get(expected.size() - 1).base();
        int start = startIn(all);
        for (int i = 0; i < expected.size(); i++) {
            checkSegment(start + i < all.size() ? all.get(start + i) : null, i);
        }
        if (active.base() <= last || start + expected.size() >= all.size()) {
            throw new Refusal("not_sealed", "segment " + last + " is the active one");
        }
        seen = new ArrayList<>(all.subList(start, start + expected.size()));
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

    private void checkSegment(BrokerSegment found, int place) throws IOException, Refusal {
        SegmentFacts wanted = expected.get(place);
        if (found == null || found.base() != wanted.base()) {
            throw gone(wanted.base());
        }
        SegmentFacts facts;
        try {
            facts = found.facts();
        } catch (NoSuchFileException e) {
            throw gone(wanted.base());
        }
        boolean plain = found.file().getFileName().toString().equals(Group.brokerName(wanted.base(), "log"));
        if (!plain || !facts.equals(wanted)) {
            throw new Refusal(sources.contains(wanted.base()) ? "source_changed" : "evidence_changed",
                    "segment " + wanted.base() + " is no longer the one that was read: " + Json.write(facts.toJson()));
        }
    }

    private Refusal gone(long base) {
        return new Refusal(sources.contains(base) ? "source_gone" : "evidence_changed", "segment " + base
                + " is gone, or another segment lies before it");
    }

    private boolean guardIsThere() throws IOException {
        long base = guard.base();
        return same(log.segments(base, base + 1), List.of(guard));
    }

    /** In one walk over the broker's map, without its lock: the segments of many windows would be copied under it. */
    private boolean objectsAreThere() throws IOException {
        List<Object> all = log.segmentObjects();
        Object first = seen.get(0).segment;
        int start = 0;
        while (start < all.size() && all.get(start) != first) {
            start++;
        }
        if (start + seen.size() > all.size()) {
            return false;
        }
        for (int i = 0; i < seen.size(); i++) {
            if (all.get(start + i) != seen.get(i).segment) {
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

    /** The row of the witness with this base offset, below 0 when there is none. */
    private int placeOf(long base) {
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
