package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The answer to {@code log}: all that a plan needs to know about one partition, its numbers taken at one moment. */
final class LogAnswer {
    private LogAnswer() {}

    static Map<String, Object> of(BrokerLog log) throws IOException, Refusal {
        // Not under the monitor: these ask the cleaner manager (A-19a).
        String cleaning = log.cleaningState();
        Long checkpoint = log.checkpoint();
        Map<String, Object> answer = new LinkedHashMap<>();
        synchronized (log.monitor()) {
            answer.put("dir", log.dir());
            answer.put("topic_id", log.topicId());
            answer.put("hw", log.highWatermark());
            answer.put("lso", log.lastStableOffset());
            answer.put("leo", log.logEndOffset());
            answer.put("log_start", log.logStartOffset());
            answer.put("recovery_point", log.recoveryPoint());
            answer.put("segments", segments(log));
            answer.put("producers", log.producers());
            answer.put("future", log.hasFuture());
            answer.put("deleted", !log.isCurrent());
        }
        answer.put("settings", log.settings());
        answer.put("segment_size", log.segmentBytes());
        answer.put("remote", log.remote());
        answer.put("cleaning", cleaning);
        answer.put("checkpoint", checkpoint);
        return answer;
    }

    private static List<Object> segments(BrokerLog log) throws IOException, Refusal {
        List<Object> rows = new ArrayList<>();
        for (BrokerSegment segment : log.segments()) {
            try {
                SegmentFacts facts = segment.facts();
                rows.add(List.of(facts.base(), facts.size(), facts.modifiedMs(), facts.inode()));
            } catch (NoSuchFileException e) {
                throw new Refusal("log_changed", e.getFile() + " is gone: the log is being deleted");
            }
        }
        return rows;
    }
}
