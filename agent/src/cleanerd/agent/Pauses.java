package cleanerd.agent;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Pauses of the broker's own cleaner. A pause also stops retention of the partition, so each is ended
 * exactly once, whatever happens, and those that could not be ended are told.
 */
final class Pauses {
    private static final long PATIENCE_SECONDS = 5;

    private final AgentLog journal;
    private final ConcurrentLinkedQueue<String> held = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> failed = new ConcurrentLinkedQueue<>();

    Pauses(AgentLog journal) {
        this.journal = journal;
    }

    /** The partitions whose cleaning the agent has paused at this moment. */
    List<String> held() {
        return List.copyOf(held);
    }

    /** The partitions that stay paused until the broker is restarted. */
    List<String> failed() {
        return List.copyOf(failed);
    }

    /**
     * Keeps the broker's cleaner away from {@code log}; busy when it, or somebody's pause, is there already. The broker's
     * call waits for its cleaner without a limit (134 s were seen), so a thread of its own makes it, which resumes at
     * once when it comes back too late.
     */
    Pause take(BrokerLog log) throws IOException, Refusal {
        String state = log.cleaningState();
        if (state.equals("no_cleaner")) {
            return new Pause(null, "");
        }
        if (!state.equals("none")) {
            throw new Refusal("busy", "the broker's cleaner works on " + log + ", or is paused there: " + state);
        }
        AtomicReference<String> outcome = new AtomicReference<>("waiting");
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch done = new CountDownLatch(1);
        String name = log.toString(); // now: there may be no memory for it when the pause is to be ended
        Pause pause = new Pause(log, name);
        Runnable help = () -> {
            boolean isPaused = false;
            try {
                Moment.reached("pausing");
                log.pauseCleaning();
                isPaused = true;
                held.add(name);
                if (!outcome.compareAndSet("waiting", "paused")) {
                    pause.close();
                }
            } catch (Throwable e) {
                failure.set(e);
                if (isPaused) {
                    pause.close();
                }
            } finally {
                done.countDown();
            }
        };
        try {
            Threads.start("cleanerd-agent-pause", help);
        } catch (OutOfMemoryError e) { // nothing has begun: another time there will be a thread
            throw new Refusal("busy", "the broker's process has no thread to spare: " + e.getMessage());
        }
        if (!await(done) && outcome.compareAndSet("waiting", "given up")) {
            throw new Refusal("busy", "the broker's cleaner did not let go of " + log + " within " + PATIENCE_SECONDS
                    + " s");
        }
        if (failure.get() != null) {
            throw new IllegalStateException("the cleaning of " + log + " cannot be paused", failure.get());
        }
        return pause;
    }

    private static boolean await(CountDownLatch done) {
        try {
            return done.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /** One pause that is held; closing it resumes. */
    final class Pause implements AutoCloseable {
        private final String name;
        private BrokerLog log;

        private Pause(BrokerLog log, String name) {
            this.log = log;
            this.name = name;
        }

        @Override
        public synchronized void close() {
            if (log == null) {
                return;
            }
            BrokerLog paused = log;
            log = null;
            held.remove(name);
            try {
                paused.resumeCleaning();
            } catch (Throwable e) {
                failed.add(name);
                journal.warn("the cleaning of " + name + " cannot be resumed, the broker must be restarted: " + e);
            }
        }
    }
}
