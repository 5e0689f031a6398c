package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.InputStream;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.util.Comparator;
import java.util.HexFormat;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/** {@code load}: Kafka's start on directories. Works in place unless a {@code source} is named to copy from. */
final class LoadCommand {
    private LoadCommand() {}

    static void run(JsonNode command, ObjectNode answer) throws Exception {
        ArrayNode logs = answer.putArray("logs");
        for (JsonNode log : command.get("logs")) {
            ObjectNode merged = command.deepCopy();
            merged.remove("logs");
            merged.setAll((ObjectNode) log);
            ObjectNode one = logs.addObject();
            try {
                load(merged, one);
            } catch (Exception | AssertionError e) {
                one.removeAll();
                one.put("error", e.getClass().getName());
                one.put("message", String.valueOf(e.getMessage()));
            }
        }
    }

    private static void load(JsonNode command, ObjectNode answer) throws Exception {
        File directory = new File(command.get("dir").asText());
        if (command.hasNonNull("source")) {
            Directories.copy(new File(command.get("source").asText()), directory);
        }
        long logStart = command.path("log_start_offset").asLong(0);
        KafkaLog log = KafkaLog.open(OpenOptions.from(command, directory, command.get("now_ms").asLong(), logStart));
        try {
            answer.put("log_start_offset", log.logStartOffset());
            answer.put("log_end_offset", log.logEndOffset());
            ArrayNode producers = answer.putArray("producers");
            log.producers().values().stream()
                    .sorted(Comparator.comparingLong(ProducerStateEntry::producerId))
                    .forEach(entry -> producers.add(Dumper.producer(entry)));
        } finally {
            if (command.path("shut_down").asBoolean(false)) {
                log.close();
            } else {
                log.abandon();
            }
        }
        answer.put("digest", digest(directory));
        FileList.write(directory, answer.putObject("files"));
        if (command.path("batches").asBoolean(false)) {
            ArrayNode batches = answer.putArray("batches");
            try (LogReader reader = new LogReader(directory)) {
                while (reader.hasNext()) {
                    BatchView view = reader.next();
                    ArrayNode batch = batches.addArray().add(view.segment);
                    batch.add(view.batch.baseOffset()).add(view.batch.lastOffset()).add(view.batch.checksum());
                }
            }
        }
    }

    /** SHA-256 over names and bytes of all .log files: equal digests, equal logs, segment borders included. */
    private static String digest(File directory) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        for (File log : Directories.segments(directory).values()) {
            sha.update(log.getName().getBytes());
            sha.update(ofFile(log));
        }
        return HexFormat.of().formatHex(sha.digest());
    }

    private static byte[] ofFile(File log) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        byte[] chunk = new byte[1 << 16];
        try (InputStream in = Files.newInputStream(log.toPath())) {
            for (int n = in.read(chunk); n > 0; n = in.read(chunk)) {
                sha.update(chunk, 0, n);
            }
        }
        return sha.digest();
    }
}
