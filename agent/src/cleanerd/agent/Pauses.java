package cleanerd.agent;

import java.io.IOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Pauses of the broker's own cleaner. A pause also stops retention of the partition, so each is ended
 * exactly once, whatever happens. One that cannot be ended is reported, and tried again every second.
 *
 * <p>States are looked at and changed with the cleaner manager's lock held: Kafka's methods tell its log of what they did,
 * and may fail over that. So whether a pause is there, and whose it is, is known from the state before and after.
 */
final class Pauses {
    private static final long PATIENCE_SECONDS = 5;

    private final AgentLog journal;
    private final Set<Pause> all = ConcurrentHashMap.newKeySet();

    Pauses(AgentLog journal) {
        this.journal = journal;
    }

    /** Whether what a pause is kept for is over. */
    interface Settled {
        boolean now() throws IOException;
    }

    /** The partitions whose cleaning the agent has paused at this moment. */
    List<String> held() {
        return names(pause -> !pause.kept);
    }

    /** The partitions that stay paused, for now or until the broker is restarted. */
    List<String> failed() {
        return names(pause -> pause.kept);
    }

    private List<String> names(Predicate<Pause> wanted) {
        return all.stream().filter(wanted).map(pause -> pause.name).collect(Collectors.toUnmodifiableList());
    }

    /**
     * Keeps the broker's cleaner away from {@code log}; busy when it, or somebody's pause, is there already. With the lock
     * held it cannot begin in between: for one at work the broker's call waits without a limit (134 s were seen), and
     * whatever else of the broker wants to pause it meanwhile, to delete or truncate the log, fails.
     */
    Pause take(BrokerLog log) throws IOException, Refusal {
        Moment.reached("pausing");
        try (HeldLock lock = log.lockCleaner(PATIENCE_SECONDS)) {
            if (lock == null) {
                return new Pause(null, "");
            }
            String state = log.cleaningState();
            if (!state.equals("none")) {
                throw new Refusal("busy", "the broker's cleaner works on " + log + ", or is paused there: " + state);
            }
            Pause pause = new Pause(log, log.toString()); // its name now: there may be no memory for it when it is to end
            all.add(pause);
            try {
                log.pauseCleaning();
                return pause;
            } catch (Throwable e) {
                pause.close(); // it may have been paused all the same
                throw new IllegalStateException("the cleaning of " + pause.name + " cannot be paused", e);
            }
        }
    }

    /** To be called now and then: ends what could not be ended before; whether some is left. Waits for nobody. */
    boolean tryAgain() {
        boolean left = false;
        for (Pause pause : all) {
            if (pause.kept) {
                pause.end(0);
                left = true;
            }
        }
        return left;
    }

    /** One pause that is held; closing it resumes. */
    final class Pause implements AutoCloseable {
        private final String name;
        private BrokerLog log;
        private Settled settled;
        private volatile boolean kept;

        private Pause(BrokerLog log, String name) {
            this.log = log;
            this.name = name;
        }

        /** Resumes as soon as {@code condition} holds. Until then nothing of the broker's cleaner may come near the log. */
        void closeWhen(Settled condition) {
            settled = condition;
            if (log != null) {
                kept = true;
                tell("a swap left files with temporary names in ", "; until they are gone, or the broker is restarted, its "
                        + "cleaner and retention stay paused there", "");
            }
        }

        @Override
        public void close() {
            end(PATIENCE_SECONDS);
        }

        private synchronized void end(long patienceSeconds) {
            if (log == null) {
                return;
            }
            try {
                if (settled == null || settled.now()) {
                    resume(patienceSeconds);
                    log = null;
                    all.remove(this);
                }
            } catch (Throwable e) {
                boolean known = kept;
                kept = true;
                if (!known) {
                    tell("the cleaning cannot be resumed of ", ", it is tried every second; a restart of the broker helps: ",
                            e);
                }
            }
        }

        /** Or not, when there is no memory for it. */
        private void tell(String before, String after, Object reason) {
            try {
                journal.warn(before + name + after + reason);
            } catch (Throwable e) {
                return;
            }
        }

        private void resume(long patienceSeconds) throws IOException, Refusal {
            try (HeldLock lock = log.lockCleaner(patienceSeconds)) {
                if (lock == null) {
                    return; // the cleaner is gone, its pauses with it
                }
                Object before = log.cleaningStateObject();
                if (!log.cleaningState().equals("paused")) {
                    return; // it was not paused after all
                }
                try {
                    log.resumeCleaning();
                } catch (Throwable e) {
                    if (log.cleaningStateObject() == before) {
                        throw e;
                    }
                }
            }
        }
    }
}
