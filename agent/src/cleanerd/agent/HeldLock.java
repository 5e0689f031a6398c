package cleanerd.agent;

import java.util.concurrent.locks.Lock;

/** A lock of the broker that this thread holds. Closing it releases the lock and records the time. */
final class HeldLock implements AutoCloseable {
    private final Lock lock;
    private final Holds holds;
    private final long startNanos = System.nanoTime();

    /** {@code lock}: this thread holds it already. */
    HeldLock(Lock lock, Holds holds) {
        this.lock = lock;
        this.holds = holds;
    }

    @Override
    public void close() {
        lock.unlock();
        holds.ended(startNanos);
    }
}
