package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The whole of one swap request: look, check the staged files, pause the broker's cleaner, and
 * then group by group let the broker replace its segments with its own code.
 */
final class Swap {
    private static final int MOST_TRIES = 5;

    /** What came of one try: the group is in, the directory has other names by now, or the log has other segments. */
    private enum Found { REPLACED, MOVED, CHANGED }

    private final BrokerLog log;
    private final SwapRequest request;
    private final Outcome outcome;
    private final Evidence evidence;
    private final ReentrantLock oneAtATime;
    private Attempt unsettled;

    /** {@code oneAtATime}: held for the locked phase; the same for all partitions of a log directory. */
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
                pause.closeWhen(unsettled);
            } else {
                pause.close();
            }
        }
    }

    /**
     * Before the pause, which stops retention too. So the broker's own cleaner may replace what is read here by its name,
     * and what does not fit then is no fault of the plan: the log's objects tell, which it replaces first.
     */
    private List<Staging> validated() throws IOException, Refusal {
        try {
            if (request.aborted() != null) {
                AbortedCheck.check(log.dir(), request.witnesses().get(0).base(), request.aborted());
            }
            if (request.checkpoint() != null && request.checkpoint() > evidence.bound()) {
                throw new Refusal("bad_plan", "the checkpoint lies above " + evidence.bound() + ", where the evidence ends");
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
                    throw new Refusal("log_changed", log + " changes all the time");
                }
            }
        } catch (Throwable e) {
            afterFailure(group, attempt, e);
        }
        done(group, attempt.output);
    }

    /** Everything that takes time is done before the lock is; false when there was a change in between. */
    private boolean replaced(Group group, Attempt attempt) throws IOException, Refusal {
        evidence.renew();
        List<BrokerSegment> sources = evidence.sourcesOf(group);
        Found found;
        oneAtATime.lock();
        try {
            found = log.underLock(() -> replacedUnderLock(group, attempt, sources));
        } finally {
            oneAtATime.unlock();
        }
        if (found == Found.MOVED) {
            attempt.directory = attempt.files.directoryChanged();
            evidence.requireNoSwap(attempt.files);
        }
        return found == Found.REPLACED;
    }

    private Found replacedUnderLock(Group group, Attempt attempt, List<BrokerSegment> sources) throws IOException, Refusal {
        long start = System.nanoTime();
        Preconditions.check(log, request);
        // Old files that go, or a segment that is rolled, change the directory too: that is looked into twice.
        if (attempt.tries < 2 && !attempt.files.directoryChanged().equals(attempt.directory)) {
            return Found.MOVED;
        }
        if (!evidence.holdsFor(group)) {
            return Found.CHANGED;
        }
        Moment.reached("locked");
        attempt.replace(sources);
        outcome.heldUs.add(microsSince(start));
        return Found.REPLACED;
    }

    /**
     * Comes back only when the broker has the new segment in spite of the failure. Whatever fails in here, for want
     * of memory too, the cleaner stays paused until all is settled.
     */
    private void afterFailure(Group group, Attempt attempt, Throwable failure) throws IOException, Refusal {
        unsettled = attempt;
        boolean swapped = false;
        try {
            swapped = attempt.inTheLog();
            if (swapped) {
                evidence.listAgain();
            }
            if (attempt.now()) {
                unsettled = null;
            }
        } catch (Throwable e) {
            suppress(failure, e);
        }
        if (!swapped) {
            rethrow(failure);
        }
        if (attempt.hasGivenUp()) {
            givenUp(group, failure);
        }
        outcome.heldUs.add(0L);
        outcome.warnings.add("group " + group.base() + " is swapped, but not in every detail: " + failure
                + (unsettled == null ? "" : "; some files keep temporary names until the broker restarts, and its cleaner "
                + "and retention are paused there until then"));
        if (failure instanceof Error) {
            done(group, attempt.output);
            throw (Error) failure;
        }
    }

    /** The group is in: a start makes an end of it. Everything else of that log directory waits for that. */
    private void givenUp(Group group, Throwable failure) throws Refusal {
        outcome.done.add(group.base());
        outcome.logDirFailed = true;
        if (failure instanceof Error) {
            throw (Error) failure;
        }
        throw new Refusal("log_dir_failed", "group " + group.base() + " is in, but what it replaces could not be put aside, "
                + "so the broker gives up the log directory: " + failure);
    }

    static void suppress(Throwable failure, Throwable another) {
        try {
            failure.addSuppressed(another);
        } catch (Throwable e) {
            return; // no memory for that
        }
    }

    private void done(Group group, BrokerSegment output) throws IOException {
        outcome.done.add(group.base());
        SegmentFacts facts = output.facts();
        outcome.outputs.add(facts.toJson());
        evidence.swapped(group, output, facts);
    }

    /** A-20; the groups are in, so a failure is only reported. */
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
