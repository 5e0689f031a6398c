package cleanerd.agent;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** One partition's log inside the broker: the {@code UnifiedLog} object and the LogManager it belongs to. */
class BrokerLog {
    private static final long STATE_SECONDS = 5;
    /** After this many producers the log's lock is released for a moment. */
    private static final int PRODUCERS_AT_ONCE = 256;

    final Broker broker;
    final Object manager;
    final Object name;
    final Object log;
    private final Members members;

    BrokerLog(Broker broker, Object manager, Object name, Object log) {
        this.broker = broker;
        this.manager = manager;
        this.name = name;
        this.log = log;
        this.members = broker.members;
    }

    @Override
    public String toString() {
        return name.toString();
    }

    String topic() throws IOException {
        return broker.topicOf(name);
    }

    int partition() throws IOException {
        return broker.partitionOf(name);
    }

    /** Code that runs while a lock is held. */
    interface Work<T, E extends Exception> {
        T run() throws IOException, E;
    }

    /**
     * Runs {@code work} while holding the monitor that guards the log's segments, and measures the time. Appends wait for
     * it. So the work must not wait, and its cost must not grow with the log or its producers (U-36, A-36). Never call the
     * cleaner manager in it (A-19a).
     */
    <T, E extends Exception> T underLock(Work<T, E> work) throws IOException, E {
        Object monitor = Reflect.get(members.lock, log);
        if (Thread.holdsLock(monitor)) {
            return work.run();
        }
        synchronized (monitor) {
            long start = System.nanoTime();
            try {
                return work.run();
            } finally {
                broker.logHolds.ended(start);
            }
        }
    }

    Path dir() throws IOException {
        return ((File) Reflect.call(members.dir, log)).toPath().toAbsolutePath();
    }

    String topicId() throws IOException {
        Object id = broker.values.orNull(Reflect.call(members.topicId, log));
        return id == null ? null : id.toString();
    }

    long highWatermark() throws IOException {
        return (Long) Reflect.call(members.highWatermark, log);
    }

    long lastStableOffset() throws IOException {
        return (Long) Reflect.call(members.lastStable, log);
    }

    long logEndOffset() throws IOException {
        return (Long) Reflect.call(members.logEnd, log);
    }

    long logStartOffset() throws IOException {
        return (Long) Reflect.call(members.logStart, log);
    }

    long recoveryPoint() throws IOException {
        return (Long) Reflect.call(members.recoveryPoint, log);
    }

    boolean remote() throws IOException {
        return members.remote != null && (Boolean) Reflect.call(members.remote, log);
    }

    /** Whether a log directory move is copying this partition. */
    boolean hasFuture() throws IOException {
        return broker.values.orNull(Reflect.call(members.getLog, manager, name, true)) != null;
    }

    /** Whether this is still the log of its partition, which may have been deleted, moved or created again. */
    boolean isCurrent() throws IOException {
        return broker.values.orNull(Reflect.call(members.getLog, manager, name, false)) == log;
    }

    /** Whether the broker can be made to give up this log's directory. */
    boolean canBeGivenUp() {
        return broker.failures != null;
    }

    /** Whether the broker knows that this log's directory failed, and takes it offline or has done so. */
    boolean isGivenUp() throws IOException {
        return canBeGivenUp() && broker.failures.hasFailed(manager, logDir());
    }

    /** Makes the broker give up this log's directory because of {@code failure}. */
    void giveUp(String message, IOException failure) throws IOException {
        broker.failures.report(manager, logDir(), message, failure);
    }

    /** The log directory's path, as the broker writes it. */
    String logDir() throws IOException {
        return ((File) Reflect.call(members.dir, log)).getParent();
    }

    boolean compacted() throws IOException {
        return (Boolean) Reflect.get(members.compact, config());
    }

    Object config() throws IOException {
        return Reflect.call(members.config, log);
    }

    /** The effective settings of the log as text, by name. */
    Map<String, String> settings() throws IOException {
        Map<String, String> result = new TreeMap<>();
        for (Map.Entry<?, ?> entry : values().entrySet()) {
            String text = asText(entry.getValue());
            if (text != null) {
                result.put(entry.getKey().toString(), text);
            }
        }
        return result;
    }

    /** The names of the settings that the topic itself has; all others are the broker's defaults. Null: unknown. */
    List<String> topicLevelSettings() throws IOException {
        if (members.topicLevel == null) {
            return null;
        }
        List<String> names = new ArrayList<>();
        for (Object name : broker.values.list(Reflect.get(members.topicLevel, config()))) {
            names.add(name.toString());
        }
        return names;
    }

    /** One setting. {@code logs} reads it from each log of the broker. */
    String setting(String key) throws IOException {
        return asText(values().get(key));
    }

    private Map<?, ?> values() throws IOException {
        return (Map<?, ?>) Reflect.call(members.settings, config());
    }

    private static String asText(Object value) {
        if (value instanceof List<?>) {
            return ((List<?>) value).stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return value == null ? null : value.toString();
    }

    /** The size at which a segment is rolled. An internal setting may override {@code segment.bytes}. */
    long segmentBytes() throws IOException {
        Object config = config();
        return ((Number) (members.segmentSize == null
                ? Reflect.get(members.segmentSizeField, config)
                : Reflect.call(members.segmentSize, config))).longValue();
    }

    int indexIntervalBytes() throws IOException {
        Object value = values().get("index.interval.bytes");
        return value instanceof Number ? ((Number) value).intValue() : 4096;
    }

    /**
     * Producer id, last data offset (or null) and epoch of all {@code ids} that the broker counts as active. The state
     * changes under the log's lock, so it is read there. Kafka's copy of all producers has no size limit.
     */
    List<List<Object>> producers(List<Long> ids) throws IOException {
        List<List<Object>> result = new ArrayList<>();
        Object producers = Reflect.call(members.producers, log);
        for (int from = 0; from < ids.size(); from += PRODUCERS_AT_ONCE) {
            List<Long> some = ids.subList(from, Math.min(from + PRODUCERS_AT_ONCE, ids.size()));
            result.addAll(underLock(() -> activeProducers(producers, some)));
        }
        return result;
    }

    private List<List<Object>> activeProducers(Object producers, List<Long> ids) throws IOException {
        List<List<Object>> result = new ArrayList<>();
        for (Long id : ids) {
            Object entry = broker.values.orNull(Reflect.call(members.lastEntry, producers, id));
            if (entry != null) {
                long offset = (Long) Reflect.call(members.lastDataOffset, entry);
                Object epoch = Reflect.call(members.producerEpoch, entry);
                result.add(Arrays.asList(id, offset < 0 ? null : offset, epoch));
            }
        }
        return result;
    }

    /** The segments, ascending; the last is the active one. */
    List<BrokerSegment> segments() throws IOException {
        return segmentsIn(underLock(() -> Reflect.call(members.segments, log)));
    }

    /** All segments, as the broker's own objects. */
    List<Object> segmentObjects() throws IOException {
        return broker.values.list(underLock(() -> Reflect.call(members.segments, log)));
    }

    /** The segments from the one that contains {@code from} to the last one below {@code to}. Cheap for few segments. */
    List<BrokerSegment> segments(long from, long to) throws IOException {
        return segmentsIn(underLock(() -> Reflect.call(members.segmentsBetween, log, from, to)));
    }

    /** The active one of all {@link #segments}; log_changed if the log is deleted and has none. */
    BrokerSegment activeOf(List<BrokerSegment> segments) throws Refusal {
        if (segments.isEmpty()) {
            throw new Refusal("log_changed", this + " is being deleted");
        }
        return segments.get(segments.size() - 1);
    }

    private List<BrokerSegment> segmentsIn(Object collection) throws IOException {
        return broker.values.list(collection).stream()
                .map(segment -> new BrokerSegment(members, segment))
                .collect(Collectors.toUnmodifiableList());
    }

    /** Opens the files with the suffix {@code .cleaned} in the partition's directory, as the broker's own cleaner does. */
    BrokerSegment openCleaned(long base) throws IOException {
        return new BrokerSegment(members, Reflect.call(members.open, null, dir().toFile(), base, config(),
                members.systemTime, true, 0, false, ".cleaned"));
    }

    /** Calls the broker's own swap. The caller holds the monitor. */
    void replace(BrokerSegment output, List<BrokerSegment> sources) throws IOException {
        Class<?> list = members.replaceSegments.getParameterTypes()[0];
        Reflect.call(members.replaceSegments, log,
                broker.values.listFor(list, List.of(output.segment)),
                broker.values.listFor(list, sources.stream().map(source -> source.segment).collect(Collectors.toList())));
    }

    /**
     * Rolls the active segment, and returns the base offset of the new one. Refuses unless the active segment begins
     * at {@code base}, because the broker may have rolled it already, and has records. The caller holds the monitor.
     */
    long roll(long base) throws IOException, Refusal {
        List<BrokerSegment> last = segments(base, Math.max(base, logEndOffset()) + 1);
        if (last.size() != 1 || last.get(0).base() != base) {
            throw new Refusal("log_changed", "the active segment of " + this + " does not begin at offset " + base);
        }
        if (last.get(0).size() == 0) {
            throw new Refusal("not_eligible", "the active segment of " + this + " has no records");
        }
        Object none = broker.values.emptyOption(members.roll.getParameterTypes()[0]);
        return new BrokerSegment(members, Reflect.call(members.roll, log, none)).base();
    }

    /**
     * Takes the lock that guards the cleaner's states of partitions; null if the broker runs without a cleaner. Busy after
     * {@code timeoutSeconds}: while a disk hangs, the cleaner may hold this lock and wait for the disk.
     */
    HeldLock lockCleaner(long timeoutSeconds) throws IOException, Refusal {
        Object cleanerManager = cleanerManager();
        return cleanerManager == null ? null : broker.lockCleaner(cleanerManager, timeoutSeconds);
    }

    /** none, in_progress, aborted, paused, unknown; no_cleaner if the broker runs without one. */
    String cleaningState() throws IOException, Refusal {
        Object state;
        try (HeldLock lock = lockCleaner(STATE_SECONDS)) {
            if (lock == null) {
                return "no_cleaner";
            }
            state = cleaningStateObject();
        }
        if (state == null) {
            return "none";
        }
        String text = state.getClass().getName() + state;
        return text.contains("InProgress") ? "in_progress"
                : text.contains("Aborted") ? "aborted"
                : text.contains("Paused") ? "paused" : "unknown";
    }

    /** The broker's own object, a new one after each change; null: the partition is neither cleaned nor paused. */
    Object cleaningStateObject() throws IOException {
        Object cleanerManager = cleanerManager();
        return cleanerManager == null ? null
                : broker.values.orNull(Reflect.call(members.cleaningState, cleanerManager, name));
    }

    void writeCheckpoint(long offset) throws IOException {
        Class<?> option = members.updateCheckpoints.getParameterTypes()[1];
        updateCheckpoints(broker.values.pairOption(option, name, offset), broker.values.emptyOption(option));
    }

    /** Removes the partition's entry, which {@link #writeCheckpoint} wrote. */
    void removeCheckpoint() throws IOException {
        Class<?> option = members.updateCheckpoints.getParameterTypes()[1];
        updateCheckpoints(broker.values.emptyOption(option), broker.values.option(option, name));
    }

    /** Kafka holds the cleaner's lock during this call. The measured time includes the wait for it. */
    private void updateCheckpoints(Object added, Object removed) throws IOException {
        long start = System.nanoTime();
        try {
            Reflect.call(members.updateCheckpoints, cleanerManager(), dir().getParent().toFile(), added, removed);
        } finally {
            broker.cleanerHolds.ended(start);
        }
    }

    /** Waits without a limit for a cleaning in progress. */
    void pauseCleaning() throws IOException {
        Reflect.call(members.pause, manager, name);
    }

    void resumeCleaning() throws IOException {
        Reflect.call(members.resume, manager, name);
    }

    private Object cleanerManager() throws IOException {
        return broker.cleanerManagerOf(manager);
    }
}
