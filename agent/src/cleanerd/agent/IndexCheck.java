package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Compares the offset index with the batches. Each entry has the position of a batch, and all offsets before that
 * position are lower than the entry's. The code of all refusals is {@code bad_index}.
 */
final class IndexCheck implements Closeable {
    private static final int ENTRY_BYTES = 8;

    private final Group group;
    private final int intervalBytes;
    private final EntryReader entries;
    private boolean more;
    private long count;
    private long offset;
    private long position;
    private long previousLast;
    private long logBytes;
    private long lastBytes;

    IndexCheck(Path path, Group group, int intervalBytes) throws IOException, Refusal {
        this.group = group;
        this.intervalBytes = intervalBytes;
        this.entries = new EntryReader(path, ENTRY_BYTES);
        this.previousLast = group.base() - 1;
        this.offset = group.base() - 1;
        this.position = -1;
        try {
            require(entries.size() % ENTRY_BYTES == 0, "its size is not a multiple of " + ENTRY_BYTES);
            advance();
        } catch (IOException | Refusal e) {
            entries.close();
            throw e;
        }
    }

    void accept(Frame frame) throws IOException, Refusal {
        if (more && position == frame.position()) {
            require(previousLast < offset, "the entry for offset " + offset + " has a position after the batch with that offset");
            advance();
        }
        require(!more || position > frame.position(), "the entry for offset " + offset + " has a position inside a batch");
        previousLast = frame.last();
        logBytes += frame.bytes();
        lastBytes = frame.bytes();
    }

    void end(long lastOffset) throws Refusal {
        require(!more, "the entry for offset " + offset + " has a position beyond the log's end");
        require(offset <= lastOffset, "the entry for offset " + offset + " is above the log's last offset, " + lastOffset);
        require(count > 0 || logBytes <= (long) intervalBytes + lastBytes,
                "it has no entries, but the log is larger than the index interval");
    }

    private void advance() throws IOException, Refusal {
        more = entries.next();
        if (more) {
            long nextOffset = group.base() + entries.intAt(0);
            int nextPosition = entries.intAt(4);
            require(entries.intAt(0) >= 0 && nextOffset > offset && nextPosition > position, "its entries do not ascend");
            offset = nextOffset;
            position = nextPosition;
            count++;
        }
    }

    private static void require(boolean holds, String what) throws Refusal {
        if (!holds) {
            throw new Refusal("bad_index", what);
        }
    }

    @Override
    public void close() throws IOException {
        entries.close();
    }
}
