package cleanerd.agent;

import java.util.concurrent.locks.Lock;

/** A lock of the broker's that this thread holds; closing it gives it back, and counts how long that was. */
final class HeldLock implements AutoCloseable {
    private final Lock lock;
    private final Holds holds;
    private final long startNanos = System.nanoTime();

    /** {@code lock}: held by this thread. */
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
