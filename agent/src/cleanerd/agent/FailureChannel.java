package cleanerd.agent;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * Reports a failed log directory to the broker, as its own cleaner does. From then on its code
 * appends to no log there and cuts none; a thread of its own takes them offline, or halts a broker that has no other.
 */
final class FailureChannel {
    private static final String NAME = "LogDirFailureChannel";

    private final Field ofManager;
    private final Method report;
    private final Method hasFailed;

    private FailureChannel(Field ofManager, Method report, Method hasFailed) {
        this.ofManager = ofManager;
        this.report = report;
        this.hasFailed = hasFailed;
    }

    /** {@code logManager}: the class. Null when this release tells of failures in another way than the agent knows. */
    static FailureChannel of(Class<?> logManager) {
        try {
            for (Field field : logManager.getDeclaredFields()) {
                if (field.getType().getSimpleName().equals(NAME)) {
                    field.setAccessible(true);
                    Method report = reportOf(field.getType());
                    Method hasFailed = Reflect.method(field.getType(), "hasOfflineLogDir", String.class);
                    return report == null ? null : new FailureChannel(field, report, hasFailed);
                }
            }
            return null;
        } catch (NoSuchMethodException | RuntimeException | LinkageError e) {
            return null;
        }
    }

    /** In 3.3 it is Scala's, and its words come as a function. */
    private static Method reportOf(Class<?> channel) {
        for (Method method : channel.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("maybeAddOfflineLogDir") && types.length == 3 && types[0] == String.class
                    && (types[1] == String.class || types[1].isInterface()) && types[2] == IOException.class) {
                method.setAccessible(true);
                return method;
            }
        }
        return null;
    }

    /** Comes back at once. {@code logDir}: as the broker calls it. */
    void report(Object manager, String logDir, String words, IOException failure) throws IOException {
        Class<?> type = report.getParameterTypes()[1];
        Object cause = type == String.class ? words
                : Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, called, values) -> words);
        Reflect.call(report, Reflect.get(ofManager, manager), logDir, cause, failure);
    }

    boolean hasFailed(Object manager, String logDir) throws IOException {
        return (Boolean) Reflect.call(hasFailed, Reflect.get(ofManager, manager), logDir);
    }
}
