package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/**
 * {@code behave}: the behaviour of a broker that starts on each log (U-37). A log is loaded from a copy in {@code scratch} and
 * queried, then its retention by time runs. A {@code judged} log is loaded twice more: after a recovery of every segment, for
 * retention by size; and for deleting its beginning. The directories themselves are only read.
 */
final class BehaveCommand {
    private final JsonNode command;
    private final File scratch;
    private final long nowMs;
    private final Questions questions;

    private BehaveCommand(JsonNode command, Questions questions) {
        this.command = command;
        this.questions = questions;
        scratch = new File(command.get("scratch").asText());
        nowMs = command.get("now_ms").asLong();
    }

    static void run(JsonNode command, ObjectNode answer) throws Exception {
        List<LogFacts> facts = new ArrayList<>();
        for (JsonNode log : command.get("logs")) {
            facts.add(new LogFacts(new File(log.get("dir").asText())));
        }
        Questions questions = new Questions(facts, command.get("now_ms").asLong());
        questions.write(answer.putObject("questions"));
        BehaveCommand asking = new BehaveCommand(command, questions);
        ArrayNode logs = answer.putArray("logs");
        for (int i = 0; i < facts.size(); i++) {
            ObjectNode one = logs.addObject();
            JsonNode log = command.get("logs").get(i);
            facts.get(i).write(one.putArray("segments"));
            if (!log.path("facts_only").asBoolean(false)) {
                asking.ask(log, one);
            }
        }
    }

    private void ask(JsonNode log, ObjectNode answer) throws Exception {
        with(log, true, "compact,delete", loaded -> {
            numbers(loaded, answer);
            walks(loaded, answer.putArray("walks"));
            byTime(loaded, answer.putArray("retained_ms"));
        });
        if (!log.path("judged").asBoolean(false)) {
            return;
        }
        with(log, false, "compact,delete", loaded -> {
            ObjectNode recovered = answer.putObject("recovered");
            largest(loaded, recovered.putArray("largest_ms"));
            times(loaded, recovered.putArray("found"));
            bySize(loaded, answer.putArray("retained_bytes"));
        });
        with(log, true, "compact", loaded -> fromTheStart(loaded, answer.putArray("started")));
    }

    private interface Asking {
        void ask(KafkaLog log) throws IOException;
    }

    private void with(JsonNode log, boolean clean, String policy, Asking asking) throws Exception {
        File directory = new File(scratch, "t-0");
        Directories.copy(new File(log.get("dir").asText()), directory);
        ObjectNode merged = command.deepCopy();
        merged.remove("logs");
        merged.put("clean_shutdown", clean);
        ((ObjectNode) merged.get("config")).put("cleanup.policy", policy);
        long logStart = log.path("log_start_offset").asLong(0);
        KafkaLog loaded = KafkaLog.open(OpenOptions.from(merged, directory, nowMs, logStart));
        try {
            loaded.setHighWatermark(loaded.logEndOffset());
            asking.ask(loaded);
        } finally {
            loaded.abandon();
            Directories.delete(scratch);
        }
    }

    private void numbers(KafkaLog log, ObjectNode answer) throws IOException {
        answer.put("log_start_offset", log.logStartOffset());
        answer.put("log_end_offset", log.logEndOffset());
        answer.put("last_stable_offset", log.lastStableOffset());
        largest(log, answer.putArray("largest_ms"));
        found(log, ListOffsetsRequest.EARLIEST_TIMESTAMP, answer.putArray("earliest"));
        found(log, ListOffsetsRequest.MAX_TIMESTAMP, answer.putArray("max_timestamp"));
        times(log, answer.putArray("found"));
        ArrayNode producers = answer.putArray("producers");
        log.producers().values().stream()
                .sorted(Comparator.comparingLong(ProducerStateEntry::producerId))
                .forEach(entry -> producers.add(Dumper.producer(entry)));
    }

    /** The time that retention uses, a number per segment. */
    private static void largest(KafkaLog log, ArrayNode into) throws IOException {
        for (LogSegment segment : log.segments()) {
            into.add(segment.largestTimestamp());
        }
    }

    private void times(KafkaLog log, ArrayNode into) throws IOException {
        for (long time : questions.timesMs) {
            found(log, time, into);
        }
    }

    /** Offset, timestamp and leader epoch of the record found; three times -1 for none. */
    private static void found(KafkaLog log, long time, ArrayNode into) throws IOException {
        FileRecords.TimestampAndOffset found = log.offsetForTime(time);
        if (found == null) {
            into.add(-1).add(-1).add(-1);
        } else {
            into.add(found.offset).add(found.timestamp).add(found.leaderEpoch.orElse(-1));
        }
    }

    private void walks(KafkaLog log, ArrayNode into) throws IOException {
        for (long from : questions.offsets) {
            if (from < log.logStartOffset() || from > log.logEndOffset()) {
                continue;
            }
            for (int fetchBytes : questions.fetchBytes) {
                ConsumerWalk.write(log, from, fetchBytes, true, into);
            }
            ConsumerWalk.write(log, from, questions.fetchBytes.get(0), false, into);
        }
    }

    /** After {@code deleteOldSegments} at each retention.ms: the base of the first segment left, and the log start offset. */
    private void byTime(KafkaLog log, ArrayNode into) throws IOException {
        for (long retentionMs : questions.retentionsMs) {
            retain(log, into, Map.of("retention.ms", String.valueOf(retentionMs)));
        }
    }

    private void bySize(KafkaLog log, ArrayNode into) throws IOException {
        for (long bytes : questions.retentionBytes) {
            retain(log, into, Map.of("retention.bytes", String.valueOf(bytes)));
        }
    }

    private void retain(KafkaLog log, ArrayNode into, Map<String, String> setting) throws IOException {
        Map<String, String> config = new HashMap<>(OpenOptions.config(command));
        config.put("cleanup.policy", "compact,delete");
        config.putAll(setting);
        log.configure(config);
        log.deleteOldSegments();
        into.add(log.segments().iterator().next().baseOffset()).add(log.logStartOffset());
    }

    /** After DeleteRecords up to each offset: the base of the first segment left, and what a consumer gets from there on. */
    private void fromTheStart(KafkaLog log, ArrayNode into) throws IOException {
        for (long offset : questions.offsets) {
            if (offset <= log.logStartOffset() || offset > log.logEndOffset()) {
                continue;
            }
            log.moveLogStart(offset);
            log.deleteOldSegments();
            into.add(log.segments().iterator().next().baseOffset());
            ConsumerWalk.write(log, log.logStartOffset(), 1 << 20, true, into);
        }
    }
}
