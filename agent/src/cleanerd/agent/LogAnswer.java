package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The answer to {@code log}: the facts about one partition that a plan needs, with numbers of one moment. The cleaner checkpoint
 * is not in it, because clients can read the file. The cleaner manager would read the checkpoints of all log directories
 * under its lock, and take a directory offline that it cannot read. Producers are left out, too: there may be a million of
 * them.
 */
final class LogAnswer {
    private static final int MOST_TRIES = 5;

    private LogAnswer() {}

    static Map<String, Object> of(BrokerLog log) throws IOException, Refusal {
        // Not under the log's lock, because it calls the cleaner manager (A-19a).
        String cleaning = log.cleaningState();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("dir", log.dir());
        answer.put("topic_id", log.topicId());
        answer.put("future", log.hasFuture());
        List<List<Object>> rows = new ArrayList<>();
        Active active = atOneMoment(log, answer, rows);
        rows.add(row(active.segment, active.sizeBytes));
        answer.put("deleted", !log.isCurrent());
        answer.put("segments", rows);
        answer.put("settings", log.settings());
        answer.put("topic_level", log.topicLevelSettings());
        answer.put("segment_size", log.segmentBytes());
        answer.put("remote", log.remote());
        answer.put("cleaning", cleaning);
        // Members of a request that this agent accepts. Agents of earlier releases refuse them.
        answer.put("compares_aborted", true);
        answer.put("compares_clean", true);
        answer.put("proves_by_markers", true);
        return answer;
    }

    /**
     * Adds the offsets of one moment, and {@code rows} of the segments that were sealed then. Only the numbers are read
     * under the log's lock. The segments are listed before and after: the same objects did not change in between.
     */
    private static Active atOneMoment(BrokerLog log, Map<String, Object> answer, List<List<Object>> rows)
            throws IOException, Refusal {
        for (int tries = 0; tries < MOST_TRIES; tries++) {
            List<BrokerSegment> before = log.segments();
            log.activeOf(before);
            Active active = log.underLock(() -> numbers(log, answer));
            List<BrokerSegment> after = log.segments();
            int last = before.size() - 1;
            if (Evidence.same(before, after) && before.get(last).segment == active.segment.segment) {
                for (BrokerSegment segment : before.subList(0, last)) {
                    rows.add(row(segment, segment.size()));
                }
                return active;
            }
        }
        throw new Refusal("busy", "the segments of " + log + " changed during each of " + MOST_TRIES + " tries to list them");
    }

    /** The caller holds the log's lock. */
    private static Active numbers(BrokerLog log, Map<String, Object> answer) throws IOException, Refusal {
        long end = log.logEndOffset();
        answer.put("hw", log.highWatermark());
        answer.put("lso", log.lastStableOffset());
        answer.put("leo", end);
        answer.put("log_start", log.logStartOffset());
        answer.put("recovery_point", log.recoveryPoint());
        return new Active(log.activeOf(log.segments(end, end + 1)));
    }

    /** The active segment, with its size at the log end offset. */
    private static final class Active {
        private final BrokerSegment segment;
        private final int sizeBytes;

        Active(BrokerSegment segment) throws IOException {
            this.segment = segment;
            this.sizeBytes = segment.size();
        }
    }

    private static List<Object> row(BrokerSegment segment, int sizeBytes) throws IOException, Refusal {
        try {
            SegmentFacts facts = segment.facts(sizeBytes);
            return List.of(facts.base(), facts.size(), facts.modifiedMs(), facts.inode());
        } catch (NoSuchFileException e) {
            throw new Refusal("log_changed", e.getFile() + " is gone: the log is being deleted");
        }
    }
}
