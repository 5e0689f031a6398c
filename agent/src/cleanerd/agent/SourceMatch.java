package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;

/**
 * Each staged batch must be a batch of the sources, with all or some of its records. So a file of another
 * partition or plan is refused. The last batch of the sources must be staged, too (S-09, A-23.4).
 */
final class SourceMatch implements Closeable {
    private static final String CODE = "source_changed";

    private final Iterator<Path> files;
    private final Iterator<SegmentFacts> sources;
    private FrameReader reader;
    private Frame source;

    SourceMatch(List<Path> files, Group group) {
        this.files = files.iterator();
        this.sources = group.sources().iterator();
    }

    void accept(Frame staged) throws IOException, Refusal {
        do {
            source = nextSource();
        } while (source != null && source.last() < staged.last());
        if (source == null || !covers(source, staged) || !staged.sameKindAs(source)) {
            throw new Refusal("foreign_batch", "the batch " + staged.base() + " to " + staged.last() + " at position "
                    + staged.position() + " is not a batch of the sources");
        }
    }

    /** A v2 batch keeps its offsets (C-52). A batch converted from v0 or v1 has those of its retained records. */
    private static boolean covers(Frame source, Frame staged) {
        if (source.magic() < 2) {
            return staged.base() >= source.base();
        }
        return staged.base() == source.base() && staged.last() == source.last();
    }

    void end() throws IOException, Refusal {
        Frame missing = nextSource();
        if (missing != null) {
            while (missing != null) {
                source = missing;
                missing = nextSource();
            }
            throw new Refusal("last_batch", "the last batch of the sources, which ends at offset " + source.last()
                    + ", is missing");
        }
    }

    private Frame nextSource() throws IOException, Refusal {
        while (true) {
            Frame next = reader == null ? null : reader.next(CODE);
            if (next != null) {
                return next;
            }
            close();
            if (!files.hasNext()) {
                return null;
            }
            try {
                reader = new FrameReader(files.next(), sources.next().base());
            } catch (NoSuchFileException e) {
                throw new Refusal("source_gone", e.getFile() + " is gone");
            }
        }
    }

    @Override
    public void close() throws IOException {
        if (reader != null) {
            reader.close();
            reader = null;
        }
    }
}
