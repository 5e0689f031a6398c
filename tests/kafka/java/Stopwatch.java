package cleanerd.judge;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** CPU time of this thread and of the whole JVM, and elapsed time, since its creation. */
final class Stopwatch {
    private final long threadCpu = threadCpu();
    private final long processCpu = processCpu();
    private final long wall = System.nanoTime();

    record Reading(long threadCpuNanos, long processCpuNanos, long wallNanos) {}

    Reading read() {
        return new Reading(threadCpu() - threadCpu, processCpu() - processCpu, System.nanoTime() - wall);
    }

    private static long threadCpu() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long processCpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
