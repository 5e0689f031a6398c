package cleanerd.agent;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/**
 * The members of Kafka that the agent uses, all looked up once. If one is missing, the agent is incapable: it
 * reports which one, and changes nothing. Where releases differ, the signature that was found selects the kind of call.
 */
final class Members {
    private static final String STORAGE = "org.apache.kafka.storage.internals.log.";
    /** Package of the classes in Scala: LogConfig and producer state up to 3.4, LogSegment to 3.6, UnifiedLog to 3.9. */
    private static final String CORE = "kafka.log.";

    /** Descriptions of the members that were not found; empty: capable. */
    final List<String> missing = new ArrayList<>();

    private final ClassLoader loader;

    final Constructor<?> topicPartition;
    final Method topicOf;
    final Method partitionOf;
    final Object systemTime;

    final Method liveLogDirs;
    final Method allLogs;
    final Method getLog;
    final Method pause;
    final Method resume;
    final Method cleaner;
    final Method cleanerManager;
    final Field cleanerLock;
    final Method cleaningState;
    /** Null: this release does not show its uncleanable partitions. */
    final Method uncleanable;
    final Method updateCheckpoints;

    final Class<?> log;
    final Field lock;
    final Method dir;
    final Method topicId;
    final Method partition;
    final Method config;
    final Method isFuture;
    final Method remote;
    final Method highWatermark;
    final Method lastStable;
    final Method logEnd;
    final Method logStart;
    final Method recoveryPoint;
    final Method segments;
    final Method segmentsBetween;
    final Method replaceSegments;
    /** Has an option as parameter: the expected next offset. */
    final Method roll;
    final Method producers;
    final Method lastEntry;
    final Method lastDataOffset;
    final Method producerEpoch;

    final Class<?> logConfig;
    final Field compact;
    final Method settings;
    final Field topicLevel;
    final Method segmentSize;
    final Field segmentSizeField;

    final Method open;
    final Method base;
    final Method size;
    final Method flush;
    final Method setLastModified;
    final Method deleteIfExists;
    final Method records;
    final Method fileOfRecords;

    /** {@code logManager}: the class of the broker's LogManager, whose loader finds all other classes. */
    Members(Class<?> logManager) {
        loader = logManager.getClassLoader();
        Class<?> partitionClass = type("org.apache.kafka.common.TopicPartition");
        topicPartition = constructor(partitionClass, String.class, int.class);
        topicOf = method(partitionClass, "topic");
        partitionOf = method(partitionClass, "partition");
        Class<?> time = type("org.apache.kafka.common.utils.Time");
        Field system = field(time, "SYSTEM");
        systemTime = system == null ? null : Reflect.get(system, null);

        liveLogDirs = method(logManager, "liveLogDirs");
        allLogs = method(logManager, "allLogs");
        getLog = method(logManager, "getLog", partitionClass, boolean.class);
        pause = method(logManager, "abortAndPauseCleaning", partitionClass);
        resume = method(logManager, "resumeCleaning", partitionClass);
        cleaner = method(logManager, "cleaner");
        cleanerManager = method(resultOf(cleaner), "cleanerManager");
        Class<?> managerClass = resultOf(cleanerManager);
        cleanerLock = field(managerClass, "lock");
        cleaningState = method(managerClass, "cleaningState", partitionClass);
        uncleanable = optional(managerClass, "uncleanablePartitions", String.class);
        updateCheckpoints = methodWithTwoOptions(managerClass, "updateCheckpoints");

        log = moved("UnifiedLog");
        lock = field(log, "lock");
        dir = method(log, "dir");
        topicId = method(log, "topicId");
        partition = method(log, "topicPartition");
        config = method(log, "config");
        isFuture = method(log, "isFuture");
        logConfig = moved("LogConfig");
        // Up to 3.4 there is no remote storage.
        remote = logConfig != null && logConfig.getName().startsWith(CORE) ? null : method(log, "remoteLogEnabled");
        highWatermark = method(log, "highWatermark");
        lastStable = method(log, "lastStableOffset");
        logEnd = method(log, "logEndOffset");
        logStart = method(log, "logStartOffset");
        recoveryPoint = method(log, "recoveryPoint");
        segments = method(log, "logSegments");
        segmentsBetween = method(log, "logSegments", long.class, long.class);
        replaceSegments = replaceSegments();
        roll = methodWithOption(log, "roll");
        producers = method(log, "producerStateManager");
        lastEntry = method(resultOf(producers), "lastEntry", long.class);
        Class<?> producer = moved("ProducerStateEntry");
        lastDataOffset = method(producer, "lastDataOffset");
        producerEpoch = method(producer, "producerEpoch");

        compact = field(logConfig, "compact");
        settings = method(logConfig, "values");
        topicLevel = optionalField(logConfig, "overriddenConfigs");
        segmentSize = optional(logConfig, "segmentSize");
        segmentSizeField = segmentSize == null ? field(logConfig, "segmentSize") : null;

        Class<?> segment = moved("LogSegment");
        open = method(segment, "open", File.class, long.class, logConfig, time, boolean.class, int.class, boolean.class,
                String.class);
        base = method(segment, "baseOffset");
        size = method(segment, "size");
        flush = method(segment, "flush");
        boolean scala = segment != null && segment.getName().startsWith(CORE);
        setLastModified = method(segment, scala ? "lastModified_$eq" : "setLastModified", long.class);
        deleteIfExists = method(segment, "deleteIfExists");
        records = method(segment, "log");
        fileOfRecords = method(resultOf(records), "file");
    }

    /** A class of the broker. */
    Class<?> named(String name) throws ClassNotFoundException {
        return Class.forName(name, true, loader);
    }

    /** The release, as the broker reports it to its clients, or null. In 4.4 that class is in another package. */
    String version() {
        for (String subpackage : List.of("", "internals.")) {
            try {
                Class<?> info = named("org.apache.kafka.common.utils." + subpackage + "AppInfoParser");
                return (String) Reflect.call(Reflect.method(info, "getVersion"), null);
            } catch (ReflectiveOperationException | IOException | RuntimeException | LinkageError e) {
                continue;
            }
        }
        return versionInJar();
    }

    /** From the file that Kafka's own class reads. */
    private String versionInJar() {
        try (InputStream stream = loader.getResourceAsStream("kafka/kafka-version.properties")) {
            Properties properties = new Properties();
            if (stream != null) {
                properties.load(stream);
            }
            return properties.getProperty("version");
        } catch (IOException | RuntimeException e) {
            return null;
        }
    }

    private Method replaceSegments() {
        for (String list : List.of("java.util.List", "scala.collection.Seq")) {
            try {
                Class<?> type = named(list);
                return Reflect.method(log, "replaceSegments", type, type);
            } catch (ReflectiveOperationException | RuntimeException e) {
                continue;
            }
        }
        missing.add("replaceSegments of the log");
        return null;
    }

    private Method methodWithTwoOptions(Class<?> owner, String name) {
        if (owner != null) {
            for (Method method : owner.getDeclaredMethods()) {
                Class<?>[] parameters = method.getParameterTypes();
                if (method.getName().equals(name) && parameters.length == 3 && parameters[0] == File.class
                        && parameters[1] == parameters[2] && Values.isOption(parameters[1])) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        missing.add(name + " of the cleaner manager");
        return null;
    }

    private Method methodWithOption(Class<?> owner, String name) {
        if (owner != null) {
            for (Method method : owner.getDeclaredMethods()) {
                Class<?>[] parameters = method.getParameterTypes();
                if (method.getName().equals(name) && parameters.length == 1 && Values.isOption(parameters[0])) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        missing.add(name + " of the log");
        return null;
    }

    private Class<?> firstType(String... names) {
        for (String name : names) {
            try {
                return named(name);
            } catch (ClassNotFoundException | LinkageError e) {
                continue;
            }
        }
        missing.add("class " + String.join(" or ", names));
        return null;
    }

    /** A class of the log, which moved from the core to the storage module. */
    private Class<?> moved(String name) {
        return firstType(CORE + name, STORAGE + name);
    }

    private Class<?> type(String name) {
        return firstType(name);
    }

    private Method optional(Class<?> owner, String name, Class<?>... parameters) {
        try {
            return owner == null ? null : Reflect.method(owner, name, parameters);
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    private Method method(Class<?> owner, String name, Class<?>... parameters) {
        for (Class<?> parameter : parameters) {
            if (parameter == null) {
                owner = null;
            }
        }
        if (owner == null) {
            missing.add("the owner or a parameter of " + name);
            return null;
        }
        try {
            return Reflect.method(owner, name, parameters);
        } catch (NoSuchMethodException | RuntimeException | LinkageError e) {
            missing.add(owner.getName() + "." + name);
            return null;
        }
    }

    private Field field(Class<?> owner, String name) {
        if (owner == null) {
            missing.add("the owner of " + name);
            return null;
        }
        try {
            return Reflect.field(owner, name);
        } catch (NoSuchFieldException | RuntimeException | LinkageError e) {
            missing.add(owner.getName() + "." + name);
            return null;
        }
    }

    private Field optionalField(Class<?> owner, String name) {
        try {
            return owner == null ? null : Reflect.field(owner, name);
        } catch (NoSuchFieldException | RuntimeException e) {
            return null;
        }
    }

    private Constructor<?> constructor(Class<?> owner, Class<?>... parameters) {
        try {
            return owner == null ? null : owner.getConstructor(parameters);
        } catch (NoSuchMethodException e) {
            missing.add("the constructor of " + owner.getName());
            return null;
        }
    }

    private static Class<?> resultOf(Method method) {
        return method == null ? null : method.getReturnType();
    }
}
