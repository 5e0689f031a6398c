package cleanerd.agent;

import java.io.IOException;

/** Checks the log itself, before its lock and under it, at a cost that does not grow with it (A-13, A-14, U-2). */
final class Preconditions {
    private Preconditions() {}

    static void check(BrokerLog log, SwapRequest request) throws IOException, Refusal {
        checkLog(log, request.topicId(), request.dir());
        if (request.logStart() != null && log.logStartOffset() != request.logStart()) {
            throw new Refusal("log_start", "the log start offset of " + log + " is " + log.logStartOffset()
                    + ", the plan has " + request.logStart());
        }
        checkBounds(log, request);
    }

    /** the log is the expected one, and may be cleaned. */
    static void checkLog(BrokerLog log, String expectedTopicId, String dir) throws IOException, Refusal {
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " was deleted, moved or created again");
        }
        if (log.isGivenUp()) {
            throw new Refusal("log_dir_failed", "the broker gives up the log directory " + log.logDir());
        }
        String topicId = log.topicId();
        if (topicId == null ? expectedTopicId != null : !topicId.equals(expectedTopicId)) {
            throw new Refusal("topic_id", "the topic id of " + log.topic() + " is " + topicId + ", the request has "
                    + expectedTopicId);
        }
        if (!log.dir().toString().equals(dir)) {
            throw new Refusal("log_changed", log + " is in " + log.dir() + ", the request has " + dir);
        }
        String name = log.toString();
        if (!log.dir().getFileName().toString().equals(name)) {
            throw new Refusal("log_changed", log + " is being moved or deleted");
        }
        if (name.equals("__cluster_metadata-0") || !log.compacted() || log.remote()) {
            throw new Refusal("not_eligible", log + " is not a compacted log whose segments are all local");
        }
        if (log.hasFuture()) {
            throw new Refusal("busy", log + " is being moved to another log directory");
        }
    }

    private static void checkBounds(BrokerLog log, SwapRequest request) throws IOException, Refusal {
        long end = request.groups().get(request.groups().size() - 1).end();
        long bound = Math.min(log.highWatermark(), log.lastStableOffset());
        if (end > bound) {
            throw new Refusal("not_below_bound", "the plan ends at offset " + end + ", above " + bound
                    + ", the lower one of high watermark and last stable offset");
        }
        if (request.belowRecoveryPoint() && end > log.recoveryPoint()) {
            throw new Refusal("not_below_bound", "the plan ends at offset " + end + ", above the recovery point "
                    + log.recoveryPoint());
        }
    }
}
