package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Runs one swap request. It checks the preconditions and the staged files, and pauses the broker's cleaner. Then the
 * broker's own code replaces the segments, one group after the other.
 */
final class Swap {
    private static final int MOST_TRIES = 5;

    /** Result of one try: the group is swapped, the directory's names changed, or the log's segments changed. */
    private enum Tried { REPLACED, NAMES_CHANGED, SEGMENTS_CHANGED }

    private final BrokerLog log;
    private final SwapRequest request;
    private final Outcome outcome;
    private final Evidence evidence;
    private final ReentrantLock oneAtATime;
    private Attempt unsettled;

    /** {@code oneAtATime}: held during the locked phase; shared by all partitions of a log directory. */
    Swap(BrokerLog log, SwapRequest request, Evidence evidence, Outcome outcome, ReentrantLock oneAtATime) {
        this.log = log;
        this.request = request;
        this.evidence = evidence;
        this.outcome = outcome;
        this.oneAtATime = oneAtATime;
    }

    void run(Pauses pauses) throws IOException, Refusal {
        long start = System.nanoTime();
        Preconditions.check(log, request);
        evidence.renew();
        List<Staging> staged = validated();
        outcome.validateUs = microsSince(start);
        Moment.reached("validated");
        start = System.nanoTime();
        Pauses.Pause pause = pauses.take(log);
        try {
            outcome.pauseUs = microsSince(start);
            for (int i = 0; i < staged.size(); i++) {
                swap(request.groups().get(i), staged.get(i));
            }
            checkpoint();
            Moment.reached("swapped");
        } finally {
            if (unsettled != null) {
                pause.closeAfter(unsettled);
            } else {
                pause.close();
            }
        }
    }

    /**
     * Runs before the pause, because a pause stops retention too. So the broker's cleaner may replace a file while it is
     * read here. After a refusal {@code renew} finds that change by the log's objects, so the plan is not blamed for it.
     */
    private List<Staging> validated() throws IOException, Refusal {
        try {
            if (request.aborted() != null) {
                AbortedCheck.check(log.dir(), request.witnesses().get(0).base(), request.aborted());
            }
            if (request.checkpoint() != null && request.checkpoint() > evidence.bound()) {
                throw new Refusal("bad_plan", "the checkpoint " + request.checkpoint() + " is above offset " + evidence.bound()
                        + ", the end of the witnesses");
            }
            return checkStaged();
        } catch (Refusal refusal) {
            evidence.renew();
            throw refusal;
        }
    }

    private List<Staging> checkStaged() throws IOException, Refusal {
        List<Staging> result = new ArrayList<>();
        int intervalBytes = log.indexIntervalBytes();
        for (Group group : request.groups()) {
            Staging staging = Staging.of(log.dir(), request.plan(), group);
            List<Path> sources = files(evidence.sourcesOf(group));
            Moment.reached("named");
            StagedCheck.check(group, staging, sources, intervalBytes, log.logStartOffset(),
                    from -> files(log.segments(from, group.base())));
            result.add(staging);
        }
        return result;
    }

    private static List<Path> files(List<BrokerSegment> segments) throws IOException {
        List<Path> files = new ArrayList<>();
        for (BrokerSegment segment : segments) {
            files.add(segment.file());
        }
        return files;
    }

    private void swap(Group group, Staging staging) throws IOException, Refusal {
        Attempt attempt = new Attempt(log, staging, group.base(), unsettled);
        try {
            evidence.requireNoSwap(attempt.files);
            attempt.open(group);
            Moment.reached("opened");
            while (!replaced(group, attempt)) {
                if (++attempt.tries == MOST_TRIES) {
                    throw new Refusal("log_changed", log + " changed during each of " + MOST_TRIES + " tries to swap");
                }
            }
        } catch (Throwable e) {
            afterFailure(group, attempt, e);
        }
        recordDone(group, attempt.output);
    }

    /** Does all slow work before it takes the lock. Returns false if the log changed in between. */
    private boolean replaced(Group group, Attempt attempt) throws IOException, Refusal {
        evidence.renew();
        List<BrokerSegment> sources = evidence.sourcesOf(group);
        Tried tried;
        oneAtATime.lock();
        try {
            tried = log.underLock(() -> replacedUnderLock(group, attempt, sources));
        } finally {
            oneAtATime.unlock();
        }
        if (tried == Tried.NAMES_CHANGED) {
            attempt.directoryChanged = attempt.files.directoryChanged();
            evidence.requireNoSwap(attempt.files);
        }
        return tried == Tried.REPLACED;
    }

    private Tried replacedUnderLock(Group group, Attempt attempt, List<BrokerSegment> sources) throws IOException, Refusal {
        long start = System.nanoTime();
        Preconditions.check(log, request);
        // A deleted file or a rolled segment changes the directory, too. So only the first two changes are checked.
        if (attempt.tries < 2 && !attempt.files.directoryChanged().equals(attempt.directoryChanged)) {
            return Tried.NAMES_CHANGED;
        }
        if (!evidence.holdsFor(group)) {
            return Tried.SEGMENTS_CHANGED;
        }
        Moment.reached("locked");
        attempt.replace(sources);
        outcome.heldUs.add(microsSince(start));
        return Tried.REPLACED;
    }

    /**
     * Returns only if the broker has the new segment despite the failure. If this method fails too, for example for
     * lack of memory, the cleaner stays paused until the recovery is complete.
     */
    private void afterFailure(Group group, Attempt attempt, Throwable failure) throws IOException, Refusal {
        unsettled = attempt;
        boolean swapped = false;
        try {
            swapped = attempt.inTheLog();
            if (swapped) {
                evidence.forgetListing();
            }
            if (attempt.complete()) {
                unsettled = null;
            }
        } catch (Throwable e) {
            addSuppressed(failure, e);
        }
        if (!swapped) {
            rethrow(failure);
        }
        if (attempt.hasGivenUp()) {
            refuseGivenUp(group, failure);
        }
        outcome.heldUs.add(0L);
        outcome.warnings.add("group " + group.base() + " is swapped, but the swap reported an error: " + failure
                + (unsettled == null ? "" : "; some files keep temporary names, and the cleaner and retention of " + log
                + " stay paused until the agent has renamed them or the broker restarts"));
        if (failure instanceof Error) {
            recordDone(group, attempt.output);
            throw (Error) failure;
        }
    }

    /** The group is swapped, and the broker's next start completes it. Until then its log directory is offline. */
    private void refuseGivenUp(Group group, Throwable failure) throws Refusal {
        outcome.done.add(group.base());
        outcome.logDirFailed = true;
        if (failure instanceof Error) {
            throw (Error) failure;
        }
        throw new Refusal("log_dir_failed", "group " + group.base() + " is swapped, but the replaced segments could not be "
                + "renamed, so the broker gives up the log directory: " + failure);
    }

    static void addSuppressed(Throwable failure, Throwable another) {
        try {
            failure.addSuppressed(another);
        } catch (Throwable e) {
            return; // there is no memory for it
        }
    }

    private void recordDone(Group group, BrokerSegment output) throws IOException {
        outcome.done.add(group.base());
        SegmentFacts facts = output.facts();
        outcome.outputs.add(facts.toJson());
        evidence.swapped(group, output, facts);
    }

    /** The groups are swapped already, so a failure here is only a warning. */
    private void checkpoint() {
        if (request.checkpoint() == null) {
            return;
        }
        try {
            Checkpoint.write(log, request.checkpoint(), evidence.below(request.checkpoint()));
            outcome.checkpoint = true;
        } catch (Refusal | IOException | RuntimeException e) {
            outcome.warnings.add("the broker's cleaner checkpoint was not moved: " + e.getMessage());
        }
    }

    private static long microsSince(long start) {
        return (System.nanoTime() - start) / 1000;
    }

    private static void rethrow(Throwable failure) throws IOException, Refusal {
        if (failure instanceof IOException) {
            throw (IOException) failure;
        }
        if (failure instanceof Refusal) {
            throw (Refusal) failure;
        }
        if (failure instanceof RuntimeException) {
            throw (RuntimeException) failure;
        }
        throw (Error) failure;
    }
}
