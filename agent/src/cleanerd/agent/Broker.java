package cleanerd.agent;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;

/** The broker that this JVM is: its LogManagers, and what of them the agent can use. */
final class Broker {
    private static final int MOST_NAMED = 3;
    private static final long TRY_AGAIN_NANOS = 60_000_000_000L;

    final Members members;
    final Values values;
    final Release release;
    /** Null: this release tells of failures in a way that the agent does not know. */
    final FailureChannel failures;
    /** Of the locks of logs. */
    final Holds logHolds = new Holds();
    /** Of the lock of the broker's cleaner. */
    final Holds cleanerHolds = new Holds();
    private final List<Object> managers;
    private final boolean allowUnknownVersion;
    private volatile Trial.Result trial = new Trial.Result("not_run", "");
    private volatile Long nodeId;
    private boolean tried;
    private long triedNanos;

    Broker(List<Object> managers, boolean allowUnknownVersion) {
        this.managers = managers;
        this.allowUnknownVersion = allowUnknownVersion;
        this.members = new Members(managers.get(0).getClass());
        this.values = new Values(members);
        this.release = Release.of(members.version());
        this.failures = FailureChannel.of(managers.get(0).getClass());
    }

    /** Whether swaps are possible at all: every member is there, the release is allowed, and the trial went well. */
    boolean capable() {
        return whyIncapable().isEmpty();
    }

    /** What keeps the agent from swapping in this broker, and what would help; empty: nothing. */
    String whyIncapable() {
        String kafka = release.version() == null ? "a Kafka that does not state its release" : "Kafka " + release.version();
        List<String> missing = members.missing;
        if (!missing.isEmpty()) {
            return kafka + " lacks what the agent works with: " + String.join(", ", missing.subList(0,
                    Math.min(missing.size(), MOST_NAMED))) + (missing.size() > MOST_NAMED ? ", ..." : "");
        }
        if (!release.known() && !allowUnknownVersion) {
            return kafka + " is not a release that this agent knows; load it with the option allow-unknown-version=true "
                    + "to have it tried and used there nevertheless";
        }
        String trialOf = "the agent's trial in a log of its own, in " + kafka + ", ";
        if (trial.failed()) {
            return trialOf + "went wrong: " + trial.detail();
        }
        if (!trial.passed() && !release.known()) {
            return trialOf + "was not possible: " + trial.detail();
        }
        return "";
    }

    /**
     * Whether a swap works here, tried before the first one. What could not be tried is tried again after a
     * minute: there may be room by then. Without the operator's word nothing of an unknown release is called.
     */
    synchronized void tryOut(AgentLog journal) {
        boolean possible = members.missing.isEmpty() && (release.known() || allowUnknownVersion);
        long now = System.nanoTime();
        if (!possible || trial.passed() || trial.failed() || tried && now - triedNanos < TRY_AGAIN_NANOS) {
            return;
        }
        Trial.Result before = trial;
        trial = new Trial(this, journal).run();
        tried = true;
        triedNanos = System.nanoTime();
        if (!trial.passed() && !trial.equals(before)) {
            journal.warn("the trial in a log of its own: " + trial.state() + ": " + trial.detail());
        }
    }

    /** One of the LogManagers: what it has of its own, all have. */
    Object anyManager() {
        return managers.get(0);
    }

    List<Path> liveLogDirs() throws IOException {
        List<Path> result = new ArrayList<>();
        if (members.liveLogDirs != null) {
            for (Object manager : managers) {
                for (Object dir : values.list(Reflect.call(members.liveLogDirs, manager))) {
                    result.add(((File) dir).toPath().toAbsolutePath());
                }
            }
        }
        return result;
    }

    /** The cleaner managers of the LogManagers that have one. */
    List<Object> cleanerManagers() throws IOException {
        List<Object> result = new ArrayList<>();
        for (Object manager : managers) {
            Object found = members.cleaner == null ? null : cleanerManagerOf(manager);
            if (found != null) {
                result.add(found);
            }
        }
        return result;
    }

    /** Null when the broker runs without a cleaner. */
    Object cleanerManagerOf(Object manager) throws IOException {
        Object cleaner = Reflect.call(members.cleaner, manager);
        return cleaner == null ? null : Reflect.call(members.cleanerManager, cleaner);
    }

    /** The manager's lock, held; busy when it is not to be had in time. */
    HeldLock lockCleaner(Object cleanerManager, long patienceSeconds) throws IOException, Refusal {
        Lock lock = (Lock) Reflect.get(members.cleanerLock, cleanerManager);
        boolean held = false;
        try {
            held = lock.tryLock(patienceSeconds, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (!held) {
            throw new Refusal("busy", "the lock of the broker's cleaner is held for more than " + patienceSeconds + " s");
        }
        return new HeldLock(lock, cleanerHolds);
    }

    /**
     * From meta.properties of the first log directory that tells it; null when none does. Read once: its disk may hang later,
     * and whoever asks for another directory would wait for it.
     */
    Long nodeId() throws IOException {
        if (nodeId == null) {
            nodeId = readNodeId();
        }
        return nodeId;
    }

    private Long readNodeId() throws IOException {
        for (Path dir : liveLogDirs()) {
            Properties properties = new Properties();
            try (var reader = Files.newBufferedReader(dir.resolve("meta.properties"))) {
                properties.load(reader);
                String id = properties.getProperty("node.id", properties.getProperty("broker.id"));
                return id == null ? null : Long.valueOf(id.trim());
            } catch (IOException | NumberFormatException e) {
                continue;
            }
        }
        return null;
    }

    /** The log of a partition; no_log when there is none yet, or none at all. */
    BrokerLog log(String topic, int partition) throws IOException, Refusal {
        List<BrokerLog> found = new ArrayList<>();
        for (Object manager : managers) {
            Object name = partitionName(topic, partition);
            Object log = values.orNull(Reflect.call(members.getLog, manager, name, false));
            if (log != null) {
                found.add(new BrokerLog(this, manager, name, log));
            }
        }
        if (found.isEmpty()) {
            throw new Refusal("no_log", "the broker has no log of " + topic + "-" + partition + ", or has not loaded it");
        }
        return found.get(0);
    }

    List<BrokerLog> logs() throws IOException {
        List<BrokerLog> result = new ArrayList<>();
        for (Object manager : managers) {
            for (Object log : values.list(Reflect.call(members.allLogs, manager))) {
                Object name = Reflect.call(members.partition, log);
                if (!(Boolean) Reflect.call(members.isFuture, log)) {
                    result.add(new BrokerLog(this, manager, name, log));
                }
            }
        }
        return result;
    }

    String topicOf(Object name) throws IOException {
        return (String) Reflect.call(members.topicOf, name);
    }

    int partitionOf(Object name) throws IOException {
        return (Integer) Reflect.call(members.partitionOf, name);
    }

    private Object partitionName(String topic, int partition) {
        try {
            return members.topicPartition.newInstance(topic, partition);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** {@code info}, as far as it is about the broker. */
    void describe(Map<String, Object> answer) throws IOException {
        answer.put("capable", capable());
        answer.put("missing", members.missing);
        answer.put("why_incapable", whyIncapable());
        answer.put("version", release.version());
        answer.put("base_version", release.base());
        answer.put("version_known", release.known());
        answer.put("self_test", trial.state());
        answer.put("self_test_detail", trial.detail());
        answer.put("node_id", nodeId());
        answer.put("log_dirs", liveLogDirs());
        List<Object> cleaners = cleanerManagers();
        answer.put("cleaner", !cleaners.isEmpty());
        answer.put("kafka_cleaner", cleaners.isEmpty() || members.cleanerManager == null ? null : CleanerState.of(this, cleaners));
        answer.put("gives_up_log_dirs", failures != null);
        answer.put("held", Map.of("log", logHolds.toJson(), "cleaner", cleanerHolds.toJson()));
    }
}
