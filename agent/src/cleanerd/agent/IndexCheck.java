package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;

/**
 * The offset index against the batches: each entry leads to a batch, and none that it leads past could hold an
 * offset from the entry's on. All its refusals are {@code bad_index}.
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
            require(entries.size() % ENTRY_BYTES == 0, "its size is no multiple of " + ENTRY_BYTES);
            advance();
        } catch (IOException | Refusal e) {
            entries.close();
            throw e;
        }
    }

    void accept(Frame frame) throws IOException, Refusal {
        if (more && position == frame.position()) {
            require(previousLast < offset, "the entry for " + offset + " leads past it");
            advance();
        }
        require(!more || position > frame.position(), "the entry for " + offset + " leads into a batch");
        previousLast = frame.last();
        logBytes += frame.bytes();
        lastBytes = frame.bytes();
    }

    void end(long lastOffset) throws Refusal {
        require(!more, "the entry for " + offset + " leads beyond the end");
        require(offset <= lastOffset, "an entry is for " + offset + ", which is beyond the end");
        require(count > 0 || logBytes <= (long) intervalBytes + lastBytes, "it is empty, and the log is not small");
    }

    private void advance() throws IOException, Refusal {
        more = entries.next();
        if (more) {
            long nextOffset = group.base() + entries.intAt(0);
            int nextPosition = entries.intAt(4);
            require(entries.intAt(0) >= 0 && nextOffset > offset && nextPosition > position, "it does not ascend");
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
