package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.storage.internals.log.LogSegment;

/** {@code retain}: a log's times for a broker, and the rest after its retention. Works in place. */
final class RetainCommand {
    private RetainCommand() {}

    static void run(JsonNode command, ObjectNode answer) throws Exception {
        File directory = new File(command.get("dir").asText());
        OpenOptions options = OpenOptions.from(command, directory, command.get("now_ms").asLong(), 0);
        KafkaLog log = KafkaLog.open(options);
        try {
            log.setHighWatermark(log.logEndOffset());
            ArrayNode largest = answer.putArray("largest_ms");
            for (LogSegment segment : log.segments()) {
                largest.add(segment.largestTimestamp());
            }
            ArrayNode found = answer.putArray("found");
            for (JsonNode time : command.get("times")) {
                FileRecords.TimestampAndOffset at = log.offsetForTime(time.asLong());
                found.add(at == null ? -1 : at.offset);
            }
            answer.put("deleted", log.deleteOldSegments());
            answer.put("log_start_offset", log.logStartOffset());
        } finally {
            log.abandon();
        }
    }
}
