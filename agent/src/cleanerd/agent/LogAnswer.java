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
 * partition, and take a directory offline that it cannot read. Whoever asks can read the file.
 */
final class LogAnswer {
    private LogAnswer() {}

    static Map<String, Object> of(BrokerLog log) throws IOException, Refusal {
        // Not under the monitor: it asks the cleaner manager (A-19a).
        String cleaning = log.cleaningState();
        Map<String, Object> answer = new LinkedHashMap<>();
        List<BrokerSegment> segments;
        List<Object> active;
        synchronized (log.monitor()) {
            answer.put("dir", log.dir());
            answer.put("topic_id", log.topicId());
            answer.put("hw", log.highWatermark());
            answer.put("lso", log.lastStableOffset());
            answer.put("leo", log.logEndOffset());
            answer.put("log_start", log.logStartOffset());
            answer.put("recovery_point", log.recoveryPoint());
            segments = log.segments();
            active = row(log.activeOf(segments)); // as long as the log end offset says
            answer.put("producers", log.producers());
            answer.put("future", log.hasFuture());
            answer.put("deleted", !log.isCurrent());
        }
        List<Object> rows = new ArrayList<>();
        for (BrokerSegment segment : segments.subList(0, segments.size() - 1)) {
            rows.add(row(segment)); // file by file: appends must not wait for that
        }
        rows.add(active);
        answer.put("segments", rows);
        answer.put("settings", log.settings());
        answer.put("segment_size", log.segmentBytes());
        answer.put("remote", log.remote());
        answer.put("cleaning", cleaning);
        // Agents of earlier releases refuse a request that asks for these.
        answer.put("compares_aborted", true);
        answer.put("compares_clean", true);
        return answer;
    }

    private static List<Object> row(BrokerSegment segment) throws IOException, Refusal {
        try {
            SegmentFacts facts = segment.facts();
            return List.of(facts.base(), facts.size(), facts.modifiedMs(), facts.inode());
        } catch (NoSuchFileException e) {
            throw new Refusal("log_changed", e.getFile() + " is gone: the log is being deleted");
        }
    }
}
