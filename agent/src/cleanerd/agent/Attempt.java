package cleanerd.agent;

import java.io.IOException;
import java.nio.file.attribute.FileTime;
import java.util.List;

/** The swap of one group: how far it came, and what is done about it when it did not come to its end. */
final class Attempt implements Pauses.Settled {
    final CleanedFiles files;
    BrokerSegment output;
    FileTime directory;
    boolean entered;
    int tries;

    private final BrokerLog log;
    private final Staging staging;
    private final Attempt earlier;
    private boolean removed;
    private IOException failure;
    private boolean givenUp;

    /** {@code earlier}: one of the same request that is not settled; null: there is none. */
    Attempt(BrokerLog log, Staging staging, long base, Attempt earlier) throws IOException {
        this.log = log;
        this.staging = staging;
        this.earlier = earlier;
        this.files = new CleanedFiles(log.dir(), base);
    }

    /** Moves the staged files in and opens them: the very files, as the broker makes an empty one where there is none. */
    void open(Group group) throws IOException, Refusal {
        files.moveIn(staging);
        Moment.reached("moved");
        output = log.openCleaned(group.base());
        output.flush();
        FileFacts opened = FileFacts.of(output.file());
        FileFacts staged = staging.facts().get("log");
        if (opened.inode() != staged.inode() || output.size() != staged.size()) {
            throw new Refusal("log_changed", output.file() + " is not the file that was staged: somebody removed that");
        }
        output.setLastModified(group.sources().get(group.sources().size() - 1).modifiedMs());
        directory = files.directoryChanged();
    }

    /**
     * The broker's own swap; with the monitor held. So what a failure leaves half-way is dealt with before anybody else
     * appends to that log, or cuts it.
     */
    void replace(List<BrokerSegment> sources) throws IOException {
        entered = true;
        try {
            log.replace(output, sources);
        } catch (Throwable e) {
            try {
                failure = e instanceof IOException ? (IOException) e : new IOException(e);
                settle();
            } catch (Throwable another) {
                Swap.suppress(e, another);
            }
            throw e;
        }
        files.finish(staging);
    }

    /** Whether the broker has the new segment. */
    boolean inTheLog() throws IOException {
        if (!entered) {
            return false;
        }
        for (BrokerSegment segment : log.segments(output.base(), output.base() + 1)) {
            if (segment.segment == output.segment) {
                return true;
            }
        }
        return false;
    }

    /** Whether the broker was made to give up the log directory. */
    boolean hasGivenUp() {
        return givenUp;
    }

    /**
     * Of an output that the log has: gives it all its files, and where the sources could not be put aside has the broker
     * give up the log directory, as after such a failure of its own cleaner. Sources that are left in the log lie beside
     * what replaced them: a truncation cuts them and not that, and the next start takes everything in its range away,
     * what was appended since as well. Not before the output has all its files: a start that finds one of them by the
     * name {@code .cleaned} throws the output away.
     */
    private void settle() throws IOException {
        log.underLock(() -> {
            if (!inTheLog()) {
                return null;
            }
            files.finish(staging);
            if (isMixed() && log.canBeGivenUp()) {
                log.giveUp("Failed to put aside the segments of " + log + " that segment " + output.base() + " replaces "
                        + "in dir " + log.logDir() + " due to IOException", failure);
                givenUp = true;
            }
            return null;
        });
    }

    /** The broker puts all sources aside before it gives the output its last name, the log first. */
    private boolean isMixed() throws IOException {
        return output.file().toString().endsWith(CleanedFiles.SWAP);
    }

    /**
     * After a failure: puts right what can be, and says whether no temporary name is left. As long as one is, the broker's
     * cleaner must not come near. It would give its own files the names that a live segment still goes by; and a start
     * throws a {@code .swap} away, be it a live segment's only file, if there is a {@code .cleaned} of its base offset or
     * a lower one. A log that is the broker's no more does not matter, and nothing is touched where it gives up the
     * directory.
     */
    @Override
    public boolean now() throws IOException {
        if (givenUp) {
            return !log.isCurrent() && (earlier == null || earlier.now());
        }
        if (inTheLog()) {
            settle();
        } else {
            if (entered) {
                files.removeSwap();
            }
            if (output != null && !removed) {
                output.deleteIfExists(); // once: the broker's log tells of each time
                removed = true;
            }
            files.removeCleaned();
        }
        return (!log.isCurrent() || !files.areLeft()) && (earlier == null || earlier.now());
    }
}
