package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;

/** {@code crash}: partition directories as brokers hold them while they write: indexes as allocated, nothing closed. */
final class CrashCommand {
    private CrashCommand() {}

    static void run(JsonNode command, ObjectNode answer) throws IOException {
        ArrayNode ends = answer.putArray("log_end_offsets");
        for (JsonNode log : command.get("logs")) {
            File directory = new File(log.get("dir").asText());
            if (!directory.isDirectory() && !directory.mkdirs()) {
                throw new IOException("cannot make " + directory);
            }
            ends.add(write(command, log, directory));
        }
    }

    private static long write(JsonNode command, JsonNode log, File directory) throws IOException {
        KafkaLog made = KafkaLog.open(OpenOptions.from(command, directory, command.get("now_ms").asLong(), 0));
        try {
            for (JsonNode segment : log.get("segments")) {
                if (segment.get("base").asLong() != made.activeBaseOffset()) {
                    made.roll(segment.get("base").asLong());
                }
                for (JsonNode batch : segment.path("batches")) {
                    made.append(BatchMaker.make(batch));
                }
            }
            return made.logEndOffset();
        } finally {
            made.abandon();
        }
    }
}
