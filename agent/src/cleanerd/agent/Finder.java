package cleanerd.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Finds the broker's LogManager, to which no static field refers. It searches the gauges that the LogManager or the
 * ReplicaManager registered, then a thread of the latter. It does not depend on field names.
 */
final class Finder {
    private static final String METRICS = "org.apache.kafka.server.metrics.KafkaYammerMetrics";
    private static final String FAILURE_THREAD = "kafka.server.ReplicaManager$LogDirFailureHandler";
    private static final Set<String> GAUGE_TYPES = Set.of("kafka.log:LogManager", "kafka.server:ReplicaManager");
    private static final int DEPTH = 3;

    private final Instrumentation instrumentation;
    private String foundVia;

    Finder(Instrumentation instrumentation) {
        this.instrumentation = instrumentation;
    }

    /** Where the last successful search found the LogManager: metrics or threads. */
    String foundVia() {
        return foundVia;
    }

    /** The LogManagers of this JVM: usually one, or none while the broker has not created it. */
    List<Object> search() throws IOException {
        Class<?> manager = null;
        Class<?> metrics = null;
        for (Class<?> loaded : instrumentation.getAllLoadedClasses()) {
            if (loaded.getName().equals(METRICS)) {
                metrics = loaded;
            } else if (loaded.getName().endsWith(".LogManager") && isLogManager(loaded)) {
                manager = loaded;
            }
        }
        if (manager == null) {
            return List.of(); // no class of Kafka was touched
        }
        Set<Object> found = Collections.newSetFromMap(new IdentityHashMap<>());
        if (metrics != null) {
            for (Object gauge : gauges(metrics)) {
                walk(gauge, DEPTH, found, Collections.newSetFromMap(new IdentityHashMap<>()));
            }
            foundVia = found.isEmpty() ? null : "metrics";
        }
        if (found.isEmpty()) {
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getClass().getName().equals(FAILURE_THREAD)) {
                    walk(thread, DEPTH, found, Collections.newSetFromMap(new IdentityHashMap<>()));
                }
            }
            foundVia = found.isEmpty() ? null : "threads";
        }
        return new ArrayList<>(found);
    }

    /** Recognized by its methods, in any package: Kafka 4.3 has a second class of that name with helpers only. */
    static boolean isLogManager(Class<?> type) {
        if (!type.getName().startsWith("kafka.") && !type.getName().startsWith("org.apache.kafka.")) {
            return false;
        }
        try {
            Reflect.method(type, "liveLogDirs");
            Class<?> partition = Class.forName("org.apache.kafka.common.TopicPartition", false, type.getClassLoader());
            Reflect.method(type, "getLog", partition, boolean.class);
            Reflect.method(type, "abortAndPauseCleaning", partition);
            return true;
        } catch (ReflectiveOperationException | LinkageError e) {
            return false;
        }
    }

    private static List<Object> gauges(Class<?> metrics) throws IOException {
        List<Object> result = new ArrayList<>();
        try {
            Object registry = Reflect.call(Reflect.method(metrics, "defaultRegistry"), null);
            Object all = Reflect.call(Reflect.method(registry.getClass(), "allMetrics"), registry);
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) all).entrySet()) {
                Object name = entry.getKey();
                Object group = Reflect.call(Reflect.method(name.getClass(), "getGroup"), name);
                Object type = Reflect.call(Reflect.method(name.getClass(), "getType"), name);
                if (GAUGE_TYPES.contains(group + ":" + type)) {
                    result.add(entry.getValue());
                }
            }
        } catch (NoSuchMethodException e) {
            return List.of();
        }
        return result;
    }

    private static void walk(Object object, int depth, Set<Object> found, Set<Object> seen) throws IOException {
        if (object == null || !seen.add(object)) {
            return;
        }
        Class<?> type = object.getClass();
        if (type.getName().endsWith(".LogManager") && isLogManager(type)) {
            found.add(object);
            return;
        }
        if (type.getName().equals("kafka.server.ReplicaManager")) {
            try {
                walk(Reflect.call(Reflect.method(type, "logManager"), object), 0, found, seen);
                return;
            } catch (NoSuchMethodException e) {
                seen.add(type); // walk its fields instead
            }
        }
        if (depth > 0) {
            for (; type != null && isKafka(type); type = type.getSuperclass()) {
                for (Field field : type.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers()) && !field.getType().isPrimitive()
                            && !field.getType().isArray()) {
                        field.setAccessible(true);
                        walk(Reflect.get(field, object), depth - 1, found, seen);
                    }
                }
            }
        }
    }

    private static boolean isKafka(Class<?> type) {
        return type.getName().startsWith("kafka.") || type.getName().startsWith("org.apache.kafka.");
    }
}
