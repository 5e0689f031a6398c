package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** {@code make}: a partition directory as a broker leaves it after a clean shutdown. */
final class LogMaker {
    private LogMaker() {}

    static void run(JsonNode command, ObjectNode answer) throws IOException {
        File directory = new File(command.get("dir").asText());
        JsonNode segments = command.get("segments");
        long first = segments.get(0).get("base").asLong();
        if (!directory.isDirectory() && !directory.mkdirs()) {
            throw new IOException("cannot make " + directory);
        }
        Set<Long> expected = new TreeSet<>(Directories.segments(directory).keySet());
        long start = expected.isEmpty() ? first : 0;
        KafkaLog log = KafkaLog.open(OpenOptions.from(command, directory, command.get("now_ms").asLong(), start));
        try {
            for (JsonNode segment : segments) {
                long base = segment.get("base").asLong();
                expected.add(base);
                if (base != log.activeBaseOffset()) {
                    log.roll(base);
                }
                for (JsonNode batch : segment.path("batches")) {
                    log.append(BatchMaker.make(batch));
                }
            }
            answer.put("log_end_offset", log.logEndOffset());
        } finally {
            log.close();
        }
        setTimes(directory, segments);
        FileList.write(directory, answer.putObject("files"));
        Set<Long> made = Directories.segments(directory).keySet();
        if (!made.equals(expected)) {
            // the log rolled at a place that the test did not request
            throw new IllegalArgumentException("segments were to be at " + expected + ", Kafka made " + made);
        }
    }

    private static void setTimes(File directory, JsonNode segments) throws IOException {
        Map<Long, File> files = Directories.segments(directory);
        for (JsonNode segment : segments) {
            File log = files.get(segment.get("base").asLong());
            if (log == null || !segment.hasNonNull("last_modified_ms")) {
                continue;
            }
            for (String suffix : new String[] {".log", ".index", ".timeindex"}) {
                File file = Directories.sibling(log, suffix);
                if (file.exists() && !file.setLastModified(segment.get("last_modified_ms").asLong())) {
                    throw new IOException("cannot set the time of " + file);
                }
            }
        }
    }
}
