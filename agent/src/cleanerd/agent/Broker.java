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

/** The broker of this JVM: its LogManagers, and the members of them that the agent uses. */
final class Broker {
    private static final int MOST_NAMED = 3;
    private static final long TRY_AGAIN_NANOS = 60_000_000_000L;

    final Members members;
    final Values values;
    final Release release;
    /** Null: the agent does not know how this release reports failed log directories. */
    final FailureChannel failures;
    /** Hold times of the logs' locks. */
    final Holds logHolds = new Holds();
    /** Hold times of the cleaner's lock. */
    final Holds cleanerHolds = new Holds();
    private final List<Object> managers;
    private final boolean allowUnknownVersion;
    private volatile SelfTest.Result selfTest = new SelfTest.Result("not_run", "");
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

    /** Whether swaps are possible: all members were found, the release is allowed, the self-test did not fail. */
    boolean capable() {
        return whyIncapable().isEmpty();
    }

    /** Why the agent cannot swap in this broker, and what to do about it; empty if it can. */
    String whyIncapable() {
        List<String> missing = members.missing;
        if (!missing.isEmpty()) {
            return kafka() + " lacks members that the agent uses: " + String.join(", ", missing.subList(0,
                    Math.min(missing.size(), MOST_NAMED))) + (missing.size() > MOST_NAMED ? ", ..." : "");
        }
        if (!release.known() && !allowUnknownVersion) {
            return kafka() + " is not a release that this agent knows; to try and use it, load the agent with the option "
                    + "allow-unknown-version=true";
        }
        if (selfTest.failed()) {
            return "the agent's self-test in " + kafka() + " failed: " + selfTest.detail();
        }
        if (!selfTest.passed() && !release.known()) {
            return "the agent's self-test in " + kafka() + " could not run: " + selfTest.detail();
        }
        return "";
    }

    private String kafka() {
        return release.version() == null ? "a Kafka that does not report its release" : "Kafka " + release.version();
    }

    /**
     * Runs the self-test before the first swap. If it could not run, it is repeated after a minute, when there may be
     * free space. The agent calls nothing of an unknown release that the operator did not allow.
     */
    synchronized void runSelfTest(AgentLog journal) {
        boolean possible = members.missing.isEmpty() && (release.known() || allowUnknownVersion);
        long now = System.nanoTime();
        if (!possible || selfTest.passed() || selfTest.failed() || tried && now - triedNanos < TRY_AGAIN_NANOS) {
            return;
        }
        SelfTest.Result before = selfTest;
        selfTest = new SelfTest(this, journal).run();
        tried = true;
        triedNanos = System.nanoTime();
        if (!selfTest.passed() && !selfTest.equals(before)) {
            journal.warn("self-test: " + selfTest.state() + ": " + selfTest.detail());
        }
    }

    /** One of the LogManagers, which all have the same members. */
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

    /** Takes the manager's lock; busy after {@code timeoutSeconds}. */
    HeldLock lockCleaner(Object cleanerManager, long timeoutSeconds) throws IOException, Refusal {
        Lock lock = (Lock) Reflect.get(members.cleanerLock, cleanerManager);
        boolean held = false;
        try {
            held = lock.tryLock(timeoutSeconds, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (!held) {
            throw new Refusal("busy", "the broker's cleaner has held its lock for more than " + timeoutSeconds
                    + " s; try again later");
        }
        return new HeldLock(lock, cleanerHolds);
    }

    /**
     * From meta.properties of the first log directory that has it; null if none has. Read once, because the disk may hang
     * later, and requests for other directories must not wait for it.
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

    /** The log of a partition; no_log if the broker has none, or has not loaded it yet. */
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

    /** Adds the broker's part of {@code info}. */
    void describe(Map<String, Object> answer) throws IOException {
        answer.put("capable", capable());
        answer.put("missing", members.missing);
        answer.put("why_incapable", whyIncapable());
        answer.put("version", release.version());
        answer.put("base_version", release.base());
        answer.put("version_known", release.known());
        answer.put("self_test", selfTest.state());
        answer.put("self_test_detail", selfTest.detail());
        answer.put("node_id", nodeId());
        answer.put("log_dirs", liveLogDirs());
        List<Object> cleaners = cleanerManagers();
        answer.put("cleaner", !cleaners.isEmpty());
        answer.put("kafka_cleaner",
                cleaners.isEmpty() || members.cleanerManager == null ? null : CleanerState.of(this, cleaners));
        answer.put("gives_up_log_dirs", failures != null);
        answer.put("held", Map.of("log", logHolds.toJson(), "cleaner", cleanerHolds.toJson()));
    }
}
