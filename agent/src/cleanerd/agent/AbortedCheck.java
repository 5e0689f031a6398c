package cleanerd.agent;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * Compares the aborted transactions that a plan depends on with the log's transaction indexes (U-32). cleanerd may have
 * read an empty index that a starting broker was rebuilding. The caller does not hold the log's monitor: the result changes
 * only together with the segments, which are checked again.
 */
final class AbortedCheck {
    private static final int ENTRY_BYTES = 34;
    private static final String SUFFIX = ".txnindex";
    private static final Pattern PLAIN = Pattern.compile("[0-9]{20}\\.txnindex");

    private AbortedCheck() { }

    /**
     * @param from the first segment that the plan depends on
     * @param wanted the SHA-256 of the transactions that began below an offset: producer, first and last offset, eight
     *     bytes per number, ascending by last offset
     */
    static void check(Path dir, long from, SwapRequest.Aborted wanted) throws IOException, Refusal {
        MessageDigest digest = sha256();
        try {
            for (Path index : indexes(dir, from).values()) {
                try (EntryReader entries = new EntryReader(index, ENTRY_BYTES)) {
                    while (entries.next()) {
                        if (entries.longAt(10) < wanted.below()) {
                            digest.update(ByteBuffer.allocate(24).putLong(entries.longAt(2)).putLong(entries.longAt(10))
                                    .putLong(entries.longAt(18)).array());
                        }
                    }
                }
            }
        } catch (NoSuchFileException e) {
            throw new Refusal("evidence_changed", e.getFile() + " is gone");
        }
        if (!Hex.of(digest.digest()).equals(wanted.sha256())) {
            throw new Refusal("evidence_changed", "the aborted transactions in the transaction indexes changed since cleanerd "
                    + "read them");
        }
    }

    private static TreeMap<Long, Path> indexes(Path dir, long from) throws IOException {
        TreeMap<Long, Path> found = new TreeMap<>();
        String[] names = dir.toFile().list(); // not by a pattern: there may be 50,000
        if (names == null) {
            Files.readAttributes(dir, BasicFileAttributes.class); // its exception has the cause
            throw new IOException(dir + " cannot be listed");
        }
        for (String name : names) {
            if (name.endsWith(SUFFIX) && PLAIN.matcher(name).matches()) {
                long base = Long.parseLong(name.substring(0, name.length() - SUFFIX.length()));
                if (base >= from) {
                    found.put(base, dir.resolve(name));
                }
            }
        }
        return found;
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e); // every JVM has it
        }
    }
}
