package cleanerd.judge;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock with a fixed time: every decision of a judged round is made at one known moment. */
final class FixedTime implements Time {
    private final long nowMs;

    FixedTime(long nowMs) {
        this.nowMs = nowMs;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000L;
    }

    @Override
    public void sleep(long ms) {
        throw new IllegalStateException("nothing that is judged may sleep");
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new IllegalStateException("nothing that is judged may wait");
    }
}
