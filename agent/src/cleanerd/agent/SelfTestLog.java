package cleanerd.agent;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A log that the broker's own classes create for a self-test, outside its log directories. No LogManager knows it. It has its
 * own scheduler and its own failure channel, so no failure takes a directory of the broker offline. Its arguments are found
 * by their types, because they differ between releases.
 */
final class SelfTestLog extends BrokerLog implements AutoCloseable {
    private static final int SOME_MS = 60_000;

    private final SelfTestTasks tasks;

    private SelfTestLog(Broker broker, Object name, Object log, SelfTestTasks tasks) {
        super(broker, null, name, log);
        this.tasks = tasks;
    }

    /** {@code directory}: empty, named like the partition. NoSuchMethodException: this release creates logs differently. */
    static SelfTestLog create(Broker broker, Path directory, String topic, Map<String, String> settings)
            throws IOException, ReflectiveOperationException {
        SelfTestTasks tasks = new SelfTestTasks();
        List<Method> factories = new ArrayList<>();
        for (Method method : broker.members.log.getDeclaredMethods()) {
            boolean named = method.getName().equals("create") || method.getName().equals("apply");
            if (named && Modifier.isStatic(method.getModifiers()) && method.getReturnType() == broker.members.log) {
                factories.add(method);
            }
        }
        if (factories.isEmpty()) {
            throw new NoSuchMethodException("create of the log");
        }
        Method factory = factories.stream().min(Comparator.comparingInt(Method::getParameterCount)).orElseThrow();
        factory.setAccessible(true);
        Object[] arguments = new Object[factory.getParameterCount()];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = argument(broker, factory.getParameterTypes()[i], directory, settings, tasks);
        }
        Object name = broker.members.topicPartition.newInstance(topic, 0);
        return new SelfTestLog(broker, name, Reflect.call(factory, null, arguments), tasks);
    }

    private static Object argument(Broker broker, Class<?> type, Path directory, Map<String, String> settings,
            SelfTestTasks tasks) throws IOException, ReflectiveOperationException {
        if (type == File.class) {
            return directory.toFile();
        }
        if (type == broker.members.logConfig) {
            return configOf(type, settings);
        }
        if (type == long.class || type == int.class || type == boolean.class) {
            return type == long.class ? (Object) 0L : type == int.class ? (Object) SOME_MS : (Object) false;
        }
        if (Values.isOption(type)) {
            return broker.values.emptyOption(type);
        }
        if (type.isAssignableFrom(ConcurrentHashMap.class)) {
            return new ConcurrentHashMap<>();
        }
        if (type.getSimpleName().equals("Scheduler")) {
            return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, tasks);
        }
        if (type.getSimpleName().equals("LogDirFailureChannel")) {
            Constructor<?> constructor = type.getConstructor(int.class);
            return constructor.newInstance(1);
        }
        if (type.getSimpleName().equals("LogOffsetsListener") && type.isInterface()) {
            return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, values) -> null);
        }
        return managersOwn(broker, type);
    }

    /** Up to 3.4 the constructor also takes a Scala set of overridden names; the class has a method for an empty one. */
    private static Object configOf(Class<?> type, Map<String, String> settings)
            throws IOException, ReflectiveOperationException {
        try {
            return type.getConstructor(Map.class).newInstance(settings);
        } catch (NoSuchMethodException e) {
            Object none = Reflect.call(Reflect.method(type, "apply$default$2"), null);
            for (Constructor<?> constructor : type.getConstructors()) {
                Class<?>[] types = constructor.getParameterTypes();
                if (types.length == 2 && types[0] == Map.class && types[1].isInstance(none)) {
                    return constructor.newInstance(settings, none);
                }
            }
            throw e;
        }
    }

    /** The broker's own objects for time, statistics and producers. */
    private static Object managersOwn(Broker broker, Class<?> type) throws ReflectiveOperationException {
        Object manager = broker.anyManager();
        for (Field field : manager.getClass().getDeclaredFields()) {
            if (field.getType() == type) {
                field.setAccessible(true);
                return field.get(manager);
            }
        }
        throw new NoSuchMethodException("the LogManager has no " + type.getName() + " to create a log with");
    }

    /** Appends batches as a follower does, with the offsets and producers that they have. */
    void append(byte[] batches) throws IOException, ReflectiveOperationException {
        for (Method method : log.getClass().getDeclaredMethods()) {
            if (method.getName().equals("appendAsFollower")) {
                Class<?>[] types = method.getParameterTypes();
                Object records = Reflect.call(Reflect.method(types[0], "readableRecords", ByteBuffer.class), null,
                        ByteBuffer.wrap(batches));
                Reflect.call(method, log, types.length == 1 ? new Object[] {records} : new Object[] {records, 0});
                return;
            }
        }
        throw new NoSuchMethodException("appendAsFollower of the log");
    }

    void roll() throws IOException, ReflectiveOperationException {
        for (Method method : log.getClass().getDeclaredMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("roll") && types.length == 1 && Values.isOption(types[0])) {
                Reflect.call(method, log, broker.values.emptyOption(types[0]));
                return;
            }
        }
        throw new NoSuchMethodException("roll of the log");
    }

    /** Makes all appended records count as replicated. */
    void raiseHighWatermark() throws IOException, ReflectiveOperationException {
        Reflect.call(Reflect.method(log.getClass(), "updateHighWatermark", long.class), log, logEndOffset());
    }

    /** The position for {@code offset} in the offset index of a segment. */
    long positionOf(BrokerSegment segment, long offset) throws IOException, ReflectiveOperationException {
        Object index = Reflect.call(Reflect.method(segment.segment.getClass(), "offsetIndex"), segment.segment);
        Object entry = Reflect.call(Reflect.method(index.getClass(), "lookup", long.class), index, offset);
        return (Integer) Reflect.get(Reflect.field(entry.getClass(), "position"), entry);
    }

    SelfTestTasks tasks() {
        return tasks;
    }

    @Override
    boolean isCurrent() {
        return true;
    }

    @Override
    boolean hasFuture() {
        return false;
    }

    /** A failure here must not take a directory of the broker offline. */
    @Override
    boolean canBeGivenUp() {
        return false;
    }

    /** The broker's cleaner does not know this log. */
    @Override
    HeldLock lockCleaner(long timeoutSeconds) {
        return null;
    }

    /** Removes the log's metrics and files. */
    @Override
    public void close() throws IOException {
        for (String name : List.of("removeLogMetrics", "delete")) {
            try {
                Reflect.call(Reflect.method(log.getClass(), name), log);
            } catch (NoSuchMethodException e) {
                continue; // the caller removes the directory
            }
        }
    }
}
