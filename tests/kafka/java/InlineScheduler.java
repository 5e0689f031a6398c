package cleanerd.judge;

import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.server.util.Scheduler;

/**
 * Runs one-time tasks at once, whatever their delay, so that a directory is final when a call returns: replaced segments are
 * really deleted. Periodic tasks never run (the clock is fixed) and neither does flushing (no test cuts the power).
 */
final class InlineScheduler implements Scheduler {
    @Override
    public void startup() {}

    @Override
    public void shutdown() {}

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs < 0 && !name.startsWith("flush")) {
            task.run();
        }
        return new Finished();
    }

    @Override
    public void resizeThreadPool(int newSize) {}

    private static final class Finished implements ScheduledFuture<Object> {
        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            return false;
        }

        @Override
        public boolean isCancelled() {
            return false;
        }

        @Override
        public boolean isDone() {
            return true;
        }

        @Override
        public Object get() {
            return null;
        }

        @Override
        public Object get(long timeout, TimeUnit unit) {
            return null;
        }
    }
}
