package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The answer to {@code log}: what a plan needs to know about one partition, its numbers taken at one moment. The clean
 * point is not in it: the cleaner manager would read the checkpoints of all log directories under its lock for each
 * partition, and take a directory offline that it cannot read. Whoever asks can read the file. Nor are the producers: there
 * may be a million of them.
 */
final class LogAnswer {
    private static final int MOST_TRIES = 5;

    private LogAnswer() {}

    static Map<String, Object> of(BrokerLog log) throws IOException, Refusal {
        // Not under the log's lock: it asks the cleaner manager (A-19a).
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
        answer.put("segment_size", log.segmentBytes());
        answer.put("remote", log.remote());
        answer.put("cleaning", cleaning);
        // Agents of earlier releases refuse a request that asks for these.
        answer.put("compares_aborted", true);
        answer.put("compares_clean", true);
        answer.put("proves_by_markers", true);
        return answer;
    }

    /**
     * The offsets of one moment, and {@code rows} of the segments that were sealed then. Only the numbers are taken under
     * the log's lock: the segments are listed before and after, and were the same in between if they are the same objects.
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
        throw new Refusal("busy", "the segments of " + log + " change all the time");
    }

    /** With the log's lock held. */
    private static Active numbers(BrokerLog log, Map<String, Object> answer) throws IOException, Refusal {
        long end = log.logEndOffset();
        answer.put("hw", log.highWatermark());
        answer.put("lso", log.lastStableOffset());
        answer.put("leo", end);
        answer.put("log_start", log.logStartOffset());
        answer.put("recovery_point", log.recoveryPoint());
        return new Active(log.activeOf(log.segments(end, end + 1)));
    }

    /** The segment that is appended to, as long as the log end offset says. */
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
