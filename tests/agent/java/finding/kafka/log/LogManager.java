package kafka.log;

import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;

/** A broker's LogManager: the agent's members of it are here, in a superclass and in an interface, and not public. */
public final class LogManager extends AboveLogManager {
    private final Map<TopicPartition, Object> logs;

    public LogManager(Map<TopicPartition, Object> logs) {
        this.logs = logs;
    }

    private Optional<Object> getLog(TopicPartition name, boolean isFuture) throws IOException {
        if (name.topic().equals("on a bad disk")) {
            throw new IOException("the disk is bad");
        }
        return Optional.ofNullable(logs.get(name));
    }

    private void abortAndPauseCleaning(TopicPartition name) {
        throw new IllegalArgumentException(name.topic());
    }

    /** The gauge by which it is found; the name of its field does not matter. */
    public static final class Gauge {
        private final Object seventeen;

        public Gauge(Object manager) {
            seventeen = manager;
        }
    }
}

abstract class AboveLogManager implements HasDirectories {
    List<File> allLogs() {
        return List.of();
    }
}

interface HasDirectories {
    default List<File> liveLogDirs() {
        return List.of(new File("/kafka/logs"));
    }
}
