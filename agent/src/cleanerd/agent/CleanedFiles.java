package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;

/** The {@code .cleaned} and {@code .swap} files of one base offset, the only names that the agent makes. */
final class CleanedFiles {
    private static final String CLEANED = ".cleaned";
    static final String SWAP = ".swap";

    private final Path directory;
    private final long base;

    CleanedFiles(Path directory, long base) {
        this.directory = directory;
        this.base = base;
    }

    /**
     * A swap in doubt stops the next one (U-34): a {@code .swap} of any base offset can be the file of a live segment
     * whose renames stopped half-way, and a restart would finish it. And a {@code .cleaned} that somebody could not remove:
     * a start throws each {@code .swap} of its base offset or a higher one away, also that of a swap after which the
     * sources are gone.
     */
    void requireNoSwap() throws IOException, Refusal {
        String[] names = directory.toFile().list();
        if (names == null) {
            throw new IOException(directory + " cannot be listed");
        }
        String ours = Group.brokerName(base, "");
        for (String name : names) {
            if (name.endsWith(SWAP) || name.endsWith(CLEANED) && !name.startsWith(ours)) {
                throw new Refusal("busy", directory.resolve(name) + " is left of a swap that failed; a restart of the "
                        + "broker resolves it");
            }
        }
    }

    /** When a name came into the directory or left it last. */
    FileTime directoryChanged() throws IOException {
        return FileFacts.of(directory).changed();
    }

    /** renames the staged files, the log last, so that a crash leaves what the broker's loader throws away. */
    void moveIn(Staging staging) throws IOException, Refusal {
        removeCleaned();
        for (String kind : Group.KINDS) {
            Path staged = staging.paths().get(kind);
            if (staged != null) {
                FileFacts checked = staging.facts().get(kind);
                boolean same = FileFacts.of(staged).equals(checked);
                if (same) {
                    Files.move(staged, path(kind, CLEANED), StandardCopyOption.ATOMIC_MOVE);
                    FileFacts moved = FileFacts.of(path(kind, CLEANED));
                    same = moved.equals(checked.renamed(moved));
                }
                if (!same) {
                    throw new Refusal(Staging.codeOf(kind), staged + " was changed while it was checked");
                }
            }
        }
    }

    /**
     * After the broker's swap: it asks whether a transaction index is there before it renames it, and takes a disk that
     * does not say for a no. A restart without that index would show aborted records; and where the log has no last name
     * yet the index must not have one either, as the loader finishes such a swap by removing what bears the last names.
     */
    void finish(Staging staging) throws IOException {
        if (staging.paths().containsKey("txnindex")) {
            if (isThere(path("log", SWAP))) {
                name(CLEANED, SWAP);
            } else {
                name(CLEANED, "");
                name(SWAP, "");
            }
        }
    }

    private void name(String from, String to) throws IOException {
        try {
            Files.move(path("txnindex", from), path("txnindex", to), StandardCopyOption.ATOMIC_MOVE);
        } catch (NoSuchFileException e) {
            return; // it has another one
        }
    }

    /** Files.exists calls a file that a disk does not show one that is not there. */
    private static boolean isThere(Path path) throws IOException {
        try {
            FileFacts.of(path);
            return true;
        } catch (NoSuchFileException e) {
            return false;
        }
    }

    /**
     * After a failure inside the broker's swap, when the log still has the sources. As long as a {@code .cleaned} file is
     * there, a restart throws all of this away, so one is made if there is none; and the {@code .swap} files go first.
     */
    void removeSwap() throws IOException {
        boolean covered = false;
        boolean any = false;
        for (String kind : Group.KINDS) {
            covered |= isThere(path(kind, CLEANED));
            any |= isThere(path(kind, SWAP));
        }
        if (any && !covered) {
            Files.createFile(path("timeindex", CLEANED));
        }
        for (String kind : Group.KINDS) {
            Files.deleteIfExists(path(kind, SWAP));
        }
    }

    /** Whether any of the temporary names is there. */
    boolean areLeft() throws IOException {
        for (String kind : Group.KINDS) {
            if (isThere(path(kind, SWAP)) || isThere(path(kind, CLEANED))) {
                return true;
            }
        }
        return false;
    }

    void removeCleaned() throws IOException {
        for (String kind : Group.KINDS) {
            Files.deleteIfExists(path(kind, CLEANED));
        }
    }

    private Path path(String kind, String suffix) {
        return directory.resolve(Group.brokerName(base, kind) + suffix);
    }
}
