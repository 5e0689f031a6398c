package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;

/** {@code clean}: Kafka's own cleaner, offline, on a log that Kafka's own loader opened; each round opens and closes it. */
final class CleanCommand {
    private CleanCommand() {}

    static void run(JsonNode command, ObjectNode answer) throws Exception {
        File directory = new File(command.get("dir").asText());
        ArrayNode rounds = answer.putArray("rounds");
        int repeat = command.path("repeat").asInt(1);
        for (int i = 0; i < repeat; i++) {
            if (command.hasNonNull("source")) {
                Directories.copy(new File(command.get("source").asText()), directory);
            }
            for (JsonNode round : command.get("rounds")) {
                round(command, round, directory, rounds.addObject());
            }
        }
        FileList.write(directory, answer.putObject("files"));
    }

    private static void round(JsonNode command, JsonNode round, File directory, ObjectNode answer) throws Exception {
        long nowMs = round.get("now_ms").asLong();
        long logStart = command.path("log_start_offset").asLong(0);
        KafkaLog log = KafkaLog.open(OpenOptions.from(command, directory, nowMs, logStart));
        try {
            log.setHighWatermark(round.path("high_watermark").asLong(log.logEndOffset()));
            CleanRequest request = new CleanRequest(
                    round.path("first_dirty_offset").asLong(log.logStartOffset()),
                    round.path("first_uncleanable_offset").asLong(log.activeBaseOffset()),
                    command.path("map_bytes").asInt(4 << 20),
                    command.path("load_factor").asDouble(0.9),
                    command.path("io_buffer_bytes").asInt(256 << 10),
                    command.path("max_io_buffer_bytes").asInt(1_048_588));
            log.clean(request, nowMs).writeTo(answer);
            answer.put("log_start_offset", log.logStartOffset());
            answer.put("log_end_offset", log.logEndOffset());
        } finally {
            log.close();
        }
    }
}
