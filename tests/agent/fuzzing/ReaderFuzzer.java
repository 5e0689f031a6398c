package cleanerd.agent;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.zip.CRC32C;

/**
 * The target that Jazzer calls with arbitrary bytes. The first byte chooses their kind: a client's line, or the staged files of a
 * group and the log of its source. Their checksums are recomputed, so that mutations reach the checks after them.
 *
 * A refusal is a valid answer; any other exception is a finding.
 */
public final class ReaderFuzzer {
    private static final Path PLACE = Path.of(System.getProperty("fuzz.place"));
    private static final int HEADER_BYTES = 61;

    private ReaderFuzzer() {}

    public static void fuzzerTestOneInput(byte[] data) throws IOException {
        outcome(data);
    }

    /** Without Jazzer: the result for each file, one line each. */
    public static void main(String[] files) throws IOException {
        for (String file : files) {
            System.out.println(outcome(Files.readAllBytes(Path.of(file))));
        }
    }

    private static String outcome(byte[] data) throws IOException {
        if (data.length == 0) {
            return "nothing";
        }
        ByteBuffer input = ByteBuffer.wrap(data);
        int kind = input.get();
        try {
            if ((kind & 1) == 0) {
                line(new String(data, 1, data.length - 1, StandardCharsets.UTF_8));
            } else {
                staged(input, (kind & 2) != 0);
            }
        } catch (Refusal refusal) {
            return refusal.code() + ": " + Objects.requireNonNull(refusal.getMessage());
        }
        return "well";
    }

    /** As {@code Requests} reads it; a valid request can be written and read again. */
    private static void line(String text) throws Refusal {
        Object value = Json.read(text);
        if (!Objects.equals(Json.read(Json.write(value)), value)) {
            throw new IllegalStateException("it is another value when it is read again");
        }
        Fields fields = new Fields(value, "bad_request", "request");
        fields.id();
        fields.numberOrNull("v", Integer.MAX_VALUE);
        switch (fields.text("op")) {
            case "swap" -> SwapRequest.of(fields, "digest").identity();
            case "checkpoint" -> {
                fields.text("topic");
                fields.number("partition", Integer.MAX_VALUE);
                fields.textOrNull("topic_id");
                fields.text("dir");
                fields.number("offset", Long.MAX_VALUE);
                if (fields.has("clean")) {
                    SegmentFacts.of(fields.object("clean"));
                }
                fields.end();
            }
            case "log", "pause", "resume" -> {
                fields.text("topic");
                fields.number("partition", Integer.MAX_VALUE);
                fields.end();
            }
            default -> fields.end();
        }
    }

    /** Log, offset index, time index, transaction index; log and transaction index of the source; lengths in front. */
    private static void staged(ByteBuffer input, boolean withAborted) throws IOException, Refusal {
        Map<String, Path> paths = new LinkedHashMap<>();
        Map<String, FileFacts> facts = new LinkedHashMap<>();
        Map<String, Group.StagedFile> files = new LinkedHashMap<>();
        byte[] log = part(input);
        seal(log);
        put("log", log, paths, facts, files);
        put("index", part(input), paths, facts, files);
        put("timeindex", part(input), paths, facts, files);
        byte[] aborted = part(input);
        if (withAborted) {
            put("txnindex", aborted, paths, facts, files);
        }
        byte[] source = part(input);
        seal(source);
        Path sourcePath = PLACE.resolve("00000000000000000000.log");
        Files.write(sourcePath, source);
        Files.write(PLACE.resolve("00000000000000000000.txnindex"), part(input));
        FileFacts of = FileFacts.of(sourcePath);
        SegmentFacts segment = new SegmentFacts(0, source.length, of.inode(), of.modifiedMs());
        Group group = new Group(0, 1L << 40, List.of(segment), files);
        StagedCheck.check(group, new Staging(paths, facts), List.of(sourcePath), 64, 0, from -> List.of());
    }

    private static byte[] part(ByteBuffer input) {
        int length = input.remaining() < 2 ? 0 : Short.toUnsignedInt(input.getShort());
        byte[] bytes = new byte[Math.min(length, input.remaining())];
        input.get(bytes);
        return bytes;
    }

    private static void put(String kind, byte[] data, Map<String, Path> paths, Map<String, FileFacts> facts,
            Map<String, Group.StagedFile> files) throws IOException {
        Path path = PLACE.resolve("staged." + kind);
        Files.write(path, data);
        CRC32C sum = new CRC32C();
        sum.update(data);
        paths.put(kind, path);
        facts.put(kind, FileFacts.of(path));
        files.put(kind, new Group.StagedFile(path.getFileName().toString(), data.length, (int) sum.getValue()));
    }

    /** Every whole batch of magic 2 gets the CRC that it should have. */
    private static void seal(byte[] log) {
        ByteBuffer bytes = ByteBuffer.wrap(log);
        for (int at = 0; at + HEADER_BYTES <= log.length; ) {
            long size = 12L + bytes.getInt(at + 8);
            if (size < HEADER_BYTES || size > log.length - at) {
                return;
            }
            if (log[at + 16] == 2) {
                CRC32C sum = new CRC32C();
                sum.update(log, at + 21, (int) size - 21);
                bytes.putInt(at + 17, (int) sum.getValue());
            }
            at += (int) size;
        }
    }
}
