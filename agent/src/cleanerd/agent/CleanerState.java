package cleanerd.agent;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import javax.management.JMException;
import javax.management.ObjectName;

/**
 * State of Kafka's own cleaner (OP-13). Its gauges have the same names in all releases; its set of uncleanable partitions
 * has no gauge. A value is null if the broker does not report it, or not at the moment.
 */
final class CleanerState {
    private static final int MOST_NAMED = 20;
    private static final long LOCK_TIMEOUT_SECONDS = 1;

    private CleanerState() {}

    static Map<String, Object> of(Broker broker, List<Object> cleanerManagers) {
        TreeSet<String> uncleanable = uncleanable(broker, cleanerManagers);
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("dead_threads", gauge("LogCleaner", "DeadThreadCount"));
        state.put("since_last_run_ms", gauge("LogCleanerManager", "time-since-last-run-ms"));
        state.put("uncleanable", uncleanable == null ? null : uncleanable.size());
        state.put("uncleanable_names", uncleanable == null ? List.of()
                : uncleanable.stream().limit(MOST_NAMED).collect(Collectors.toUnmodifiableList()));
        return state;
    }

    private static Long gauge(String type, String name) {
        try {
            ObjectName gauge = new ObjectName("kafka.log:type=" + type + ",name=" + name);
            return ((Number) ManagementFactory.getPlatformMBeanServer().getAttribute(gauge, "Value")).longValue();
        } catch (JMException | RuntimeException e) {
            return null; // metrics.jmx.exclude can exclude it
        }
    }

    /** The manager's lock guards the sets. While a disk hangs it may be held for long, and {@code info} must not wait. */
    private static TreeSet<String> uncleanable(Broker broker, List<Object> cleanerManagers) {
        TreeSet<String> names = new TreeSet<>();
        try {
            for (Object manager : cleanerManagers) {
                for (Path dir : broker.liveLogDirs()) {
                    Object found;
                    HeldLock lock = broker.lockCleaner(manager, LOCK_TIMEOUT_SECONDS);
                    try {
                        found = Reflect.call(broker.members.uncleanable, manager, dir.toString());
                    } finally {
                        lock.close();
                    }
                    broker.values.list(found).forEach(name -> names.add(name.toString()));
                }
            }
            return names;
        } catch (IOException | Refusal | RuntimeException e) {
            return null;
        }
    }
}
