package cleanerd.agent;

import java.io.IOException;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Pauses of the broker's own cleaner. A pause also stops retention of the partition, so each one is ended
 * exactly once, after any failure. If a pause cannot be ended, the agent reports it and retries every second.
 *
 * <p>The agent reads and changes states while it holds the cleaner manager's lock. Kafka's methods write to its log, which
 * may fail after the change. So the states before and after show whether the agent's pause exists.
 */
final class Pauses {
    private static final long LOCK_TIMEOUT_SECONDS = 5;

    private final AgentLog journal;
    private final Set<Pause> all = ConcurrentHashMap.newKeySet();

    Pauses(AgentLog journal) {
        this.journal = journal;
    }

    /** Completes or undoes an incomplete swap. */
    interface Recovery {
        /** Tries it once. Returns true once no file has a temporary name. */
        boolean complete() throws IOException;
    }

    /** The partitions that a request or a connection has paused. */
    List<String> held() {
        return names(pause -> !pause.retried);
    }

    /** The partitions whose pause the agent retries to end. */
    List<String> failed() {
        return names(pause -> pause.retried);
    }

    private List<String> names(Predicate<Pause> wanted) {
        return all.stream().filter(wanted).map(pause -> pause.name).collect(Collectors.toUnmodifiableList());
    }

    /**
     * Pauses the broker's cleaner for {@code log}; busy if a cleaning is in progress or paused there already. The cleaner
     * cannot begin while the agent holds its lock. Otherwise the broker's call would wait for the cleaning without a limit
     * (134 s were seen). Until then the broker could not pause it to delete or truncate the log.
     */
    Pause take(BrokerLog log) throws IOException, Refusal {
        Moment.reached("pausing");
        try (HeldLock lock = log.lockCleaner(LOCK_TIMEOUT_SECONDS)) {
            if (lock == null) {
                return new Pause(null, "");
            }
            String state = log.cleaningState();
            if (!state.equals("none")) {
                throw new Refusal("busy", "the broker's cleaner is cleaning " + log + " or is paused for it (" + state
                        + "); try again later");
            }
            Pause pause = new Pause(log, log.toString()); // the name now: later there may be no memory for it
            all.add(pause);
            try {
                log.pauseCleaning();
                return pause;
            } catch (Throwable e) {
                pause.close(); // it may be paused despite the failure
                throw new IllegalStateException("the broker's cleaner could not be paused for " + pause.name, e);
            }
        }
    }

    /** Call this regularly. Tries to end the remaining pauses, without waiting. Returns whether some remain. */
    boolean tryAgain() {
        boolean remain = false;
        for (Pause pause : all) {
            if (pause.retried) {
                pause.end(0);
                remain = true;
            }
        }
        return remain;
    }

    /** One pause; closing it resumes the cleaner. */
    final class Pause implements AutoCloseable {
        private final String name;
        private BrokerLog log;
        private Recovery recovery;
        private volatile boolean retried;

        private Pause(BrokerLog log, String name) {
            this.log = log;
            this.name = name;
        }

        /** Resumes once {@code incomplete} is complete. Until then the broker's cleaner must not change the log. */
        void closeAfter(Recovery incomplete) {
            recovery = incomplete;
            if (log != null) {
                retried = true;
                warn("a swap left files with temporary names in ", "; its cleaner and retention stay paused until the agent has "
                        + "removed them or the broker restarts", "");
            }
        }

        @Override
        public void close() {
            end(LOCK_TIMEOUT_SECONDS);
        }

        private synchronized void end(long timeoutSeconds) {
            if (log == null) {
                return;
            }
            try {
                if (recovery == null || recovery.complete()) {
                    resume(timeoutSeconds);
                    log = null;
                    all.remove(this);
                }
            } catch (Throwable e) {
                boolean reported = retried;
                retried = true;
                if (!reported) {
                    warn("the broker's cleaner could not be resumed for ", "; the agent retries every second, a restart of the "
                            + "broker resolves it, too: ", e);
                }
            }
        }

        /** Does nothing if there is no memory for the message. */
        private void warn(String before, String after, Object reason) {
            try {
                journal.warn(before + name + after + reason);
            } catch (Throwable e) {
                return;
            }
        }

        private void resume(long timeoutSeconds) throws IOException, Refusal {
            try (HeldLock lock = log.lockCleaner(timeoutSeconds)) {
                if (lock == null) {
                    return; // the broker has no cleaner any more, so no pauses
                }
                Object before = log.cleaningStateObject();
                if (!log.cleaningState().equals("paused")) {
                    return; // the pause never began
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
