package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The whole of one swap request (live-agent.md section 5): look, check the staged files, pause the broker's cleaner, and
 * then group by group let the broker replace its segments with its own code.
 */
final class Swap {
    private final BrokerLog log;
    private final SwapRequest request;
    private final Outcome outcome;
    private final Evidence evidence;
    private final ReentrantLock oneAtATime;

    /** {@code oneAtATime}: held for the locked phase; the same for all partitions of a log directory. */
    Swap(BrokerLog log, SwapRequest request, Outcome outcome, ReentrantLock oneAtATime) {
        this.log = log;
        this.request = request;
        this.outcome = outcome;
        this.evidence = new Evidence(log, request);
        this.oneAtATime = oneAtATime;
    }

    void run(Pauses pauses) throws IOException, Refusal {
        synchronized (log.monitor()) {
            evidence.check();
        }
        long start = System.nanoTime();
        List<Staging> staged = checkStaged();
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
            pause.close();
        }
    }

    /** Before the pause, which stops retention too, and needs none. */
    private List<Staging> checkStaged() throws IOException, Refusal {
        List<Staging> result = new ArrayList<>();
        int intervalBytes = log.indexIntervalBytes();
        for (Group group : request.groups()) {
            Staging staging = Staging.of(log.dir(), request.plan(), group);
            List<Path> sources = new ArrayList<>();
            for (BrokerSegment source : evidence.sourcesOf(group)) {
                sources.add(source.file());
            }
            StagedCheck.check(group, staging, sources, intervalBytes);
            result.add(staging);
        }
        return result;
    }

    private void swap(Group group, Staging staging) throws IOException, Refusal {
        CleanedFiles files = new CleanedFiles(log.dir(), group.base());
        BrokerSegment output = null;
        boolean entered = false;
        try {
            files.moveIn(staging);
            output = log.openCleaned(group.base());
            output.flush();
            output.setLastModified(group.sources().get(group.sources().size() - 1).modifiedMs());
            Moment.reached("opened");
            oneAtATime.lock();
            try {
                synchronized (log.monitor()) {
                    long start = System.nanoTime();
                    evidence.check();
                    Moment.reached("locked");
                    entered = true;
                    log.replace(output, evidence.sourcesOf(group));
                    outcome.heldUs.add(microsSince(start));
                }
            } finally {
                oneAtATime.unlock();
            }
        } catch (Throwable e) {
            afterFailure(group, files, output, entered, e);
        }
        done(group, output);
    }

    /** Comes back only when the broker has the new segment in spite of the failure. */
    private void afterFailure(Group group, CleanedFiles files, BrokerSegment output, boolean entered, Throwable failure)
            throws IOException, Refusal {
        if (entered && inTheLog(output)) {
            outcome.heldUs.add(0L);
            outcome.warnings.add("group " + group.base() + " is swapped, but not to its end; a restart of the broker "
                    + "completes the names: " + failure);
        } else {
            try {
                if (entered) {
                    files.removeSwap();
                }
                if (output != null) {
                    output.deleteIfExists();
                }
                files.removeCleaned();
            } catch (IOException | RuntimeException e) {
                failure.addSuppressed(e);
            }
            rethrow(failure);
        }
        if (failure instanceof Error error) {
            done(group, output);
            throw error;
        }
    }

    private boolean inTheLog(BrokerSegment output) throws IOException {
        synchronized (log.monitor()) {
            for (BrokerSegment segment : log.segments()) {
                if (segment.segment == output.segment) {
                    return true;
                }
            }
            return false;
        }
    }

    private void done(Group group, BrokerSegment output) throws IOException {
        outcome.done.add(group.base());
        SegmentFacts facts = output.facts();
        outcome.outputs.add(facts.toJson());
        evidence.swapped(group, output, facts);
    }

    /** A-20; the groups are in, so a failure is told and no more. */
    private void checkpoint() {
        if (request.checkpoint() == null) {
            return;
        }
        try {
            Checkpoint.write(log, request.checkpoint());
            outcome.checkpoint = true;
        } catch (Refusal | IOException | RuntimeException e) {
            outcome.warnings.add("the broker's clean point stays: " + e.getMessage());
        }
    }

    private static long microsSince(long start) {
        return (System.nanoTime() - start) / 1000;
    }

    private static void rethrow(Throwable failure) throws IOException, Refusal {
        if (failure instanceof IOException e) {
            throw e;
        }
        if (failure instanceof Refusal e) {
            throw e;
        }
        if (failure instanceof RuntimeException e) {
            throw e;
        }
        throw (Error) failure;
    }
}
