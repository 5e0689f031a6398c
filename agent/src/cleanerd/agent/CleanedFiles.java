package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;

/** The {@code .cleaned} and {@code .swap} files of one base offset. The agent creates no other names. */
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
     * Refuses while files of an incomplete swap exist (U-34). A {@code .swap} of any base offset can be the file of a live
     * segment, and the broker's next start completes its renames. A {@code .cleaned} is as dangerous: a start deletes each
     * {@code .swap} of the same base offset or a higher one, even if its sources are gone.
     */
    void requireNoSwap() throws IOException, Refusal {
        String[] names = directory.toFile().list();
        if (names == null) {
            throw new IOException(directory + " cannot be listed");
        }
        String ours = Group.brokerName(base, "");
        for (String name : names) {
            if (name.endsWith(SWAP) || name.endsWith(CLEANED) && !name.startsWith(ours)) {
                throw new Refusal("busy", directory.resolve(name) + " was left by a swap that failed; a restart "
                        + "of the broker resolves it");
            }
        }
    }

    /** When a name was last added to the directory or removed from it. */
    FileTime directoryChanged() throws IOException {
        return FileFacts.of(directory).changed();
    }

    /** renames the staged files, the log last. So after a crash the broker's loader deletes them. */
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
                    throw new Refusal(Staging.codeOf(kind), staged + " changed while it was checked");
                }
            }
        }
    }

    /**
     * Gives a staged transaction index the log's suffix after the broker's swap. The broker skips an index that its
     * disk does not show, and readers would see aborted records after a restart. While the log is named {@code .swap} the
     * index must be, too: to complete that swap, a start deletes files with final names.
     */
    void finish(Staging staging) throws IOException {
        if (staging.paths().containsKey("txnindex")) {
            if (exists(path("log", SWAP))) {
                renameTxnIndex(CLEANED, SWAP);
            } else {
                renameTxnIndex(CLEANED, "");
                renameTxnIndex(SWAP, "");
            }
        }
    }

    /** Reads before it renames: a file system that became read-only fails even the rename of a missing file. */
    private void renameTxnIndex(String from, String to) throws IOException {
        if (exists(path("txnindex", from))) {
            Files.move(path("txnindex", from), path("txnindex", to), StandardCopyOption.ATOMIC_MOVE);
        }
    }

    /** Unlike Files.exists, throws if the disk fails: then it is unknown whether the file exists. */
    private static boolean exists(Path path) throws IOException {
        try {
            FileFacts.of(path);
            return true;
        } catch (NoSuchFileException e) {
            return false;
        }
    }

    /**
     * Removes the {@code .swap} files after a failure inside the broker's swap, while the log still has the sources. A start
     * deletes all of these files as long as a {@code .cleaned} exists. So this creates one if there is none, and the
     * {@code .swap} files are deleted first.
     */
    void removeSwap() throws IOException {
        boolean covered = false;
        boolean any = false;
        for (String kind : Group.KINDS) {
            covered |= exists(path(kind, CLEANED));
            any |= exists(path(kind, SWAP));
        }
        if (any && !covered) {
            Files.createFile(path("timeindex", CLEANED));
        }
        for (String kind : Group.KINDS) {
            Files.deleteIfExists(path(kind, SWAP));
        }
    }

    /** Whether any file with a temporary name exists. */
    boolean anyExists() throws IOException {
        for (String kind : Group.KINDS) {
            if (exists(path(kind, SWAP)) || exists(path(kind, CLEANED))) {
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
