package cleanerd.agent;

import java.io.IOException;

/** What must hold of the log itself, however many segments it has (A-13, A-14, U-2); asked before and under its lock. */
final class Preconditions {
    private Preconditions() {}

    static void check(BrokerLog log, SwapRequest request) throws IOException, Refusal {
        checkLog(log, request.topicId(), request.dir());
        if (request.logStart() != null && log.logStartOffset() != request.logStart()) {
            throw new Refusal("log_start", "the log start offset is " + log.logStartOffset());
        }
        checkBounds(log, request);
    }

    /** the log is the one that was meant, and one that is cleaned at all. */
    static void checkLog(BrokerLog log, String expectedTopicId, String dir) throws IOException, Refusal {
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " is another log by now");
        }
        if (log.isGivenUp()) {
            throw new Refusal("log_dir_failed", "the broker gives up the log directory " + log.logDir());
        }
        String topicId = log.topicId();
        if (topicId == null ? expectedTopicId != null : !topicId.equals(expectedTopicId)) {
            throw new Refusal("topic_id", "the id of " + log.topic() + " is " + topicId);
        }
        if (!log.dir().toString().equals(dir)) {
            throw new Refusal("log_changed", log + " lies in " + log.dir());
        }
        String name = log.toString();
        if (!log.dir().getFileName().toString().equals(name)) {
            throw new Refusal("log_changed", log + " is being moved or deleted");
        }
        if (name.equals("__cluster_metadata-0") || !log.compacted() || log.remote()) {
            throw new Refusal("not_eligible", log + " is no compacted log with all its segments here");
        }
        if (log.hasFuture()) {
            throw new Refusal("busy", log + " is being moved to another log directory");
        }
    }

    private static void checkBounds(BrokerLog log, SwapRequest request) throws IOException, Refusal {
        long end = request.groups().get(request.groups().size() - 1).end();
        long bound = Math.min(log.highWatermark(), log.lastStableOffset());
        if (end > bound) {
            throw new Refusal("not_below_bound", "the plan ends at offset " + end + ", the log is stable up to "
                    + bound);
        }
        if (request.belowRecoveryPoint() && end > log.recoveryPoint()) {
            throw new Refusal("not_below_bound", "the plan ends at offset " + end + ", the recovery point is "
                    + log.recoveryPoint());
        }
    }
}
