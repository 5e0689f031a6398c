package cleanerd.agent;

import java.io.IOException;
import java.util.List;

/** The broker's own clean point of a partition. Whether the offset is right is the daemon's business (S-50). */
final class Checkpoint {
    private Checkpoint() {}

    static void write(BrokerLog log, long offset) throws IOException, Refusal {
        List<BrokerSegment> segments = log.segments();
        long active = segments.get(segments.size() - 1).base();
        if (offset < log.logStartOffset() || offset > active) {
            throw new Refusal("bad_plan", "a clean point lies from " + log.logStartOffset() + " to " + active);
        }
        if (log.cleaningState().equals("no_cleaner")) {
            throw new Refusal("not_eligible", "the broker runs without a cleaner");
        }
        log.writeCheckpoint(offset);
    }
}
