package cleanerd.agent;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * Reports a failed log directory to the broker, as its own cleaner does. From then on the broker neither appends to
 * logs there nor truncates them. One of its threads takes them offline, or halts a broker without another log directory.
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

    /** {@code logManager}: the class. Null if the agent does not know how this release reports failures. */
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

    /** In 3.3 the channel is a Scala class and takes the message as a function. */
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

    /** Returns at once. {@code logDir}: the path, as the broker writes it. */
    void report(Object manager, String logDir, String message, IOException failure) throws IOException {
        Class<?> type = report.getParameterTypes()[1];
        Object cause = type == String.class ? message
                : Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, called, values) -> message);
        Reflect.call(report, Reflect.get(ofManager, manager), logDir, cause, failure);
    }

    boolean hasFailed(Object manager, String logDir) throws IOException {
        return (Boolean) Reflect.call(hasFailed, Reflect.get(ofManager, manager), logDir);
    }
}
