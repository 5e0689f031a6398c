package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.List;

/**
 * The broker's own clean point of a partition (A-20, S-50). How far the log was cleaned is the daemon's business; that it
 * is still that log is asked here, because the pause of the cleaner keeps neither a deletion nor a truncation away.
 */
final class Checkpoint {
    private static final int MOST_TRIES = 5;
    private static final long TRY_AGAIN_MS = 100;

    private Checkpoint() {}

    /**
     * {@code clean}: the last segment that begins below {@code offset}, as it is in a log that is clean up to there; null:
     * as it is now. A deletion, a move and a truncation first change the log and then take back what they find of it in
     * the checkpoint. So what was written before they looked they take back, and what was written after is taken back here.
     */
    static void write(BrokerLog log, long offset, SegmentFacts clean) throws IOException, Refusal {
        requireCurrent(log);
        long active = log.activeOf(log.segments()).base();
        if (offset < log.logStartOffset() || offset > active) {
            throw new Refusal("bad_plan", "a clean point lies from " + log.logStartOffset() + " to " + active);
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
        } catch (Throwable e) { // an Error, too, and whatever came after it was written
            takeBack(log);
            throw e;
        }
    }

    /** Too low costs work only. It is tried a few times: an Error may pass. */
    private static void takeBack(BrokerLog log) {
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
            throw new Refusal("evidence_changed", "below offset " + offset + " lies another segment than the one that was "
                    + "cleaned: " + (found == null ? "none" : Json.write(found.toJson())));
        }
    }

    private static void requireCurrent(BrokerLog log) throws IOException, Refusal {
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " is another log by now");
        }
    }

    /** Null when no segment begins below {@code offset}, or its file is gone. */
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
