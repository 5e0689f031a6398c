package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Compares the time index with the batches. No batch up to an entry's offset has a larger timestamp than the entry.
 * The last entry has the largest timestamp of the log. The code of all refusals is {@code bad_timeindex}.
 */
final class TimeIndexCheck implements Closeable {
    private static final int ENTRY_BYTES = 12;

    private final Group group;
    private final EntryReader entries;
    private boolean more;
    private long timestampMs = -1;
    private long offset;
    private long largestMs = -1;

    TimeIndexCheck(Path path, Group group) throws IOException, Refusal {
        this.group = group;
        this.entries = new EntryReader(path, ENTRY_BYTES);
        this.offset = group.base();
        try {
            require(entries.size() % ENTRY_BYTES == 0, "its size is not a multiple of " + ENTRY_BYTES);
            advance();
        } catch (IOException | Refusal e) {
            entries.close();
            throw e;
        }
    }

    void accept(Frame frame) throws IOException, Refusal {
        while (more && offset < frame.base()) {
            finishEntry();
        }
        largestMs = Math.max(largestMs, frame.maxTimestampMs());
    }

    void end(long lastOffset) throws IOException, Refusal {
        while (more) {
            require(offset <= lastOffset, "the entry for offset " + offset + " is above the log's last offset, " + lastOffset);
            finishEntry();
        }
        require(timestampMs == largestMs, "its last timestamp is " + timestampMs + ", the log's largest is " + largestMs);
    }

    private void finishEntry() throws IOException, Refusal {
        require(largestMs <= timestampMs, "the entry for offset " + offset + " has the timestamp " + timestampMs
                + ", but the log has " + largestMs + " below it");
        advance();
    }

    private void advance() throws IOException, Refusal {
        more = entries.next();
        if (more) {
            long nextOffset = group.base() + entries.intAt(8);
            require(entries.intAt(8) >= 0 && nextOffset >= offset && entries.longAt(0) > timestampMs,
                    "its entries do not ascend");
            offset = nextOffset;
            timestampMs = entries.longAt(0);
        }
    }

    private static void require(boolean holds, String what) throws Refusal {
        if (!holds) {
            throw new Refusal("bad_timeindex", what);
        }
    }

    @Override
    public void close() throws IOException {
        entries.close();
    }
}
