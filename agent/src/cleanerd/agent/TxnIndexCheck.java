package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * Compares the staged transaction index with those of the sources (A-23.7, U-22). It has their entries, unchanged and in
 * their order. It may omit an entry only if the staged log has none of its data: otherwise consumers would read aborted
 * data as committed. {@link MarkerProof} checks all other differences. The code of all refusals is {@code bad_txnindex}.
 */
final class TxnIndexCheck {
    static final int ENTRY_BYTES = 34;
    private static final int MOST_AT_ONCE = 65_536; // entries in memory; more entries need another walk over the headers

    private final Group group;
    private final Path index;
    private final MarkerProof proof;

    private TxnIndexCheck(Group group, Path index, MarkerProof proof) {
        this.group = group;
        this.index = index;
        this.proof = proof;
    }

    /** {@code index}: the staged index, or null; {@code sources}: the {@code .log} files of the sources. */
    static void check(Group group, Path index, List<Path> sources, MarkerProof proof) throws IOException, Refusal {
        TxnIndexCheck check = new TxnIndexCheck(group, index, proof);
        if (index == null) {
            check.walk(null, sources);
            return;
        }
        try (EntryReader staged = new EntryReader(index, ENTRY_BYTES)) {
            require(staged.size() % ENTRY_BYTES == 0, "its size is not a multiple of " + ENTRY_BYTES);
            require(staged.size() > 0, "it is empty; an index without entries must not be staged");
            check.walk(staged, sources);
        }
    }

    private void walk(EntryReader staged, List<Path> sources) throws IOException, Refusal {
        try (SourceEntries entries = new SourceEntries(sources)) {
            long previous = -1;
            boolean more = entries.next();
            while (staged != null && staged.next()) {
                long last = staged.longAt(18);
                require(staged.shortAt(0) == 0, "an entry's version is " + staged.shortAt(0) + ", not 0");
                require(last > previous && last >= group.base() && last < group.end(),
                        "the entry up to " + last + " is out of order, or not of this group");
                previous = last;
                ByteBuffer wanted = staged.copy();
                boolean found = false;
                while (!found && more && entries.longAt(18) <= last) {
                    found = entries.copy().equals(wanted);
                    if (!found) {
                        remove(entries);
                    }
                    more = entries.next();
                }
                if (!found) {
                    proof.add(staged);
                    proveWhenMany();
                }
            }
            while (more) {
                remove(entries);
                more = entries.next();
            }
        }
        proof.run(index);
    }

    private void remove(SourceEntries entries) throws IOException, Refusal {
        proof.remove(entries.longAt(2), entries.longAt(10), entries.longAt(18));
        proveWhenMany();
    }

    private void proveWhenMany() throws IOException, Refusal {
        if (proof.size() >= MOST_AT_ONCE) {
            proof.run(index);
            proof.clear();
        }
    }

    private static void require(boolean holds, String what) throws Refusal {
        if (!holds) {
            throw new Refusal("bad_txnindex", what);
        }
    }

    /** The entries of all sources, one after the other. */
    private static final class SourceEntries implements Closeable {
        private final Iterator<Path> files;
        private EntryReader reader;

        SourceEntries(List<Path> sources) throws IOException {
            List<Path> indexes = new ArrayList<>();
            for (Path source : sources) {
                String name = source.getFileName().toString();
                Path index = source.resolveSibling(name.substring(0, name.length() - ".log".length()) + ".txnindex");
                try {
                    // Files.exists would hide an index that a failing disk does not show.
                    Files.readAttributes(index, BasicFileAttributes.class);
                    indexes.add(index);
                } catch (NoSuchFileException e) {
                    continue; // nothing was aborted there
                }
            }
            files = indexes.iterator();
        }

        boolean next() throws IOException, Refusal {
            while (reader == null || !reader.next()) {
                close();
                if (!files.hasNext()) {
                    return false;
                }
                try {
                    reader = new EntryReader(files.next(), ENTRY_BYTES);
                } catch (NoSuchFileException e) {
                    throw new Refusal("source_gone", e.getFile() + " is gone");
                }
            }
            return true;
        }

        ByteBuffer copy() {
            return reader.copy();
        }

        long longAt(int offset) {
            return reader.longAt(offset);
        }

        @Override
        public void close() throws IOException {
            if (reader != null) {
                reader.close();
                reader = null;
            }
        }
    }
}
