package cleanerd.agent;

import java.io.IOException;
import java.nio.file.attribute.FileTime;
import java.util.List;

/** The swap of one group: its progress, and its recovery after a failure. */
final class Attempt implements Pauses.Recovery {
    final CleanedFiles files;
    BrokerSegment output;
    FileTime directoryChanged;
    boolean begun;
    int tries;

    private final BrokerLog log;
    private final Staging staging;
    private final Attempt earlier;
    private boolean removed;
    private IOException failure;
    private boolean givenUp;

    /** {@code earlier}: an incomplete attempt of the same request, or null. */
    Attempt(BrokerLog log, Staging staging, long base, Attempt earlier) throws IOException {
        this.log = log;
        this.staging = staging;
        this.earlier = earlier;
        this.files = new CleanedFiles(log.dir(), base);
    }

    /** Moves the staged files in and opens them. The broker creates an empty file for a missing one, so the inode is compared. */
    void open(Group group) throws IOException, Refusal {
        files.moveIn(staging);
        Moment.reached("moved");
        output = log.openCleaned(group.base());
        output.flush();
        FileFacts opened = FileFacts.of(output.file());
        FileFacts staged = staging.facts().get("log");
        if (opened.inode() != staged.inode() || output.size() != staged.size()) {
            throw new Refusal("log_changed", output.file() + " is not the staged file: another process removed that one");
        }
        output.setLastModified(group.sources().get(group.sources().size() - 1).modifiedMs());
        directoryChanged = files.directoryChanged();
    }

    /**
     * Calls the broker's own swap. The caller holds the monitor, so a failure is handled before another thread can append
     * to the log or truncate it.
     */
    void replace(List<BrokerSegment> sources) throws IOException {
        begun = true;
        try {
            log.replace(output, sources);
        } catch (Throwable e) {
            try {
                failure = e instanceof IOException ? (IOException) e : new IOException(e);
                completeInLog();
            } catch (Throwable another) {
                Swap.addSuppressed(e, another);
            }
            throw e;
        }
        files.finish(staging);
    }

    /** Whether the broker has the new segment. */
    boolean inTheLog() throws IOException {
        if (!begun) {
            return false;
        }
        for (BrokerSegment segment : log.segments(output.base(), output.base() + 1)) {
            if (segment.segment == output.segment) {
                return true;
            }
        }
        return false;
    }

    /** Whether this attempt made the broker give up the log directory. */
    boolean hasGivenUp() {
        return givenUp;
    }

    /**
     * Gives an output that the log has all its files. If the broker could not rename the sources, it is then made to give
     * up the log directory, as after such a failure of its own cleaner. Otherwise a truncation would cut the sources that
     * remain in the log, but not the output. The next start would then delete everything in the output's range, also
     * records appended since. The files come first: a start that finds one named {@code .cleaned} deletes the output.
     */
    private void completeInLog() throws IOException {
        log.underLock(() -> {
            if (!inTheLog()) {
                return null;
            }
            files.finish(staging);
            if (sourcesRemain() && log.canBeGivenUp()) {
                log.giveUp("Failed to rename the segments of " + log + " that segment " + output.base() + " replaces "
                        + "in dir " + log.logDir() + " due to IOException", failure);
                givenUp = true;
            }
            return null;
        });
    }

    /** The broker renames all sources before it gives the output its final name, the log first. */
    private boolean sourcesRemain() throws IOException {
        return output.file().toString().endsWith(CleanedFiles.SWAP);
    }

    /**
     * Tries to complete or undo the swap after a failure. Returns true once no file has a temporary name. Until then the
     * broker's cleaner has to stay paused: it would give its own files the names that a live segment still uses. A start
     * deletes a {@code .swap}, even a live segment's only file, beside a {@code .cleaned} of the same or a lower base
     * offset. Files of a directory that the broker gives up stay unchanged.
     */
    @Override
    public boolean complete() throws IOException {
        if (givenUp) {
            return !log.isCurrent() && (earlier == null || earlier.complete());
        }
        if (inTheLog()) {
            completeInLog();
        } else {
            if (begun) {
                files.removeSwap();
            }
            if (output != null && !removed) {
                output.deleteIfExists(); // once, because the broker logs each call
                removed = true;
            }
            files.removeCleaned();
        }
        return !files.anyExists() && (earlier == null || earlier.complete());
    }
}
