package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.List;

/**
 * Writes the broker's cleaner checkpoint of a partition (A-20, S-50). The daemon knows how far the log is clean. This class
 * checks that it is still the same log, because a pause of the cleaner prevents neither a deletion nor a truncation.
 */
final class Checkpoint {
    private static final int MOST_TRIES = 5;
    private static final long TRY_AGAIN_MS = 100;

    private Checkpoint() {}

    /**
     * {@code clean}: the expected last segment below {@code offset}; null: the present one. A deletion, a move and a
     * truncation first change the log, then remove its entry from the checkpoint. They remove an entry that was written
     * before. If it was written after, the second check here sees the changed log and removes it.
     */
    static void write(BrokerLog log, long offset, SegmentFacts clean) throws IOException, Refusal {
        requireCurrent(log);
        long active = log.activeOf(log.segments()).base();
        if (offset < log.logStartOffset() || offset > active) {
            throw new Refusal("bad_plan", "the cleaner checkpoint " + offset + " of " + log + " is not from " + log.logStartOffset()
                    + " (log start) to " + active + " (active segment)");
        }
        if (log.cleaningState().equals("no_cleaner")) {
            throw new Refusal("not_eligible", "the broker runs without a cleaner");
        }
        SegmentFacts found = factsBelow(log, offset);
        SegmentFacts wanted = clean == null ? found : clean;
        require(log, offset, found, wanted);
        Moment.reached("checkpoint");
        try {
            log.writeCheckpoint(offset);
            require(log, offset, factsBelow(log, offset), wanted);
        } catch (Throwable e) { // an Error, too: the entry may have been written
            remove(log);
            throw e;
        }
    }

    /** Without an entry the cleaner only does more work. Tried several times, because an Error may be temporary. */
    private static void remove(BrokerLog log) {
        for (int tries = 0; tries < MOST_TRIES; tries++) {
            try {
                log.removeCheckpoint();
                return;
            } catch (Throwable e) {
                Threads.pause(TRY_AGAIN_MS);
            }
        }
    }

    private static void require(BrokerLog log, long offset, SegmentFacts found, SegmentFacts wanted)
            throws IOException, Refusal {
        requireCurrent(log);
        if (wanted == null ? found != null : !wanted.equals(found)) {
            throw new Refusal("evidence_changed", "the segment below offset " + offset + " of " + log
                    + " is not the cleaned one: " + (found == null ? "none" : Json.write(found.toJson())));
        }
    }

    private static void requireCurrent(BrokerLog log) throws IOException, Refusal {
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " was deleted, moved or created again");
        }
    }

    /** Null if no segment begins below {@code offset}, or its file is gone. */
    private static SegmentFacts factsBelow(BrokerLog log, long offset) throws IOException {
        BrokerSegment last = null;
        for (BrokerSegment segment : offset == 0 ? List.<BrokerSegment>of() : log.segments(offset - 1, offset)) {
            last = segment;
        }
        try {
            return last == null ? null : last.facts();
        } catch (NoSuchFileException e) {
            return null;
        }
    }
}
