package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.Uuid;

/** The options for opening a log; every field has the broker's meaning. */
record OpenOptions(
        File directory,
        Map<String, String> config,
        long logStartOffset,
        long recoveryPoint,
        long nowMs,
        int producerExpirationMs,
        boolean cleanShutdown,
        Optional<Uuid> topicId) {

    static OpenOptions from(JsonNode command, File directory, long nowMs, long logStartOffset) {
        return new OpenOptions(
                directory,
                config(command),
                logStartOffset,
                command.path("recovery_point").asLong(0),
                nowMs,
                command.path("producer_expiration_ms").asInt(86_400_000),
                command.path("clean_shutdown").asBoolean(true),
                command.hasNonNull("topic_id")
                        ? Optional.of(Uuid.fromString(command.get("topic_id").asText()))
                        : Optional.empty());
    }

    /** The topic's settings: nothing is deleted or rolled unless the command says so. */
    static Map<String, String> config(JsonNode command) {
        Map<String, String> config = new HashMap<>();
        config.put("retention.ms", "-1");
        config.put("segment.bytes", String.valueOf(Integer.MAX_VALUE));
        config.put("segment.ms", String.valueOf(Long.MAX_VALUE));
        config.put("cleanup.policy", "compact");
        JsonNode given = command.path("config");
        given.fieldNames().forEachRemaining(name -> config.put(name, given.get(name).asText()));
        return config;
    }
}
