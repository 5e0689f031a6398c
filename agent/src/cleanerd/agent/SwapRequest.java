package cleanerd.agent;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** A swap request that is consistent in itself; one that is not is refused as bad_plan. */
final class SwapRequest {
    private static final Pattern PLAN = Pattern.compile("[a-z0-9-]{1,40}");

    private final String plan;
    private final String topic;
    private final int partition;
    private final String topicId;
    private final String dir;
    private final Long logStart;
    private final List<SegmentFacts> witnesses;
    private final List<Group> groups;
    private final Aborted aborted;
    private final Long checkpoint;
    private final boolean belowRecoveryPoint;
    private final String content;

    /**
     * @param logStart the log start offset that the decision depends on, or null (U-2)
     * @param witnesses every segment that the decision depends on, as cleanerd read it (U-3); null: those of this plan's
     *     earlier request on this connection, with the outputs that were swapped in since
     * @param aborted the aborted transactions that the decision depends on (U-32); null: they are not compared
     * @param checkpoint the broker's cleaner checkpoint, or null
     * @param belowRecoveryPoint whether the groups must be below the recovery point, too
     * @param content the request without its id and its evidence; a repeated request must have the same
     */
    SwapRequest(String plan, String topic, int partition, String topicId, String dir, Long logStart,
            List<SegmentFacts> witnesses, List<Group> groups, Aborted aborted, Long checkpoint, boolean belowRecoveryPoint,
            String content) {
        this.plan = plan;
        this.topic = topic;
        this.partition = partition;
        this.topicId = topicId;
        this.dir = dir;
        this.logStart = logStart;
        this.witnesses = witnesses;
        this.groups = groups;
        this.aborted = aborted;
        this.checkpoint = checkpoint;
        this.belowRecoveryPoint = belowRecoveryPoint;
        this.content = content;
    }

    /** The aborted transactions that began below {@code below}; see {@link AbortedCheck}. */
    static final class Aborted {
        private final long below;
        private final String sha256;

        Aborted(long below, String sha256) {
            this.below = below;
            this.sha256 = sha256;
        }

        long below() {
            return below;
        }

        String sha256() {
            return sha256;
        }
    }

    static SwapRequest of(Fields fields, String content) throws Refusal {
        SwapRequest request = new SwapRequest(
                fields.text("plan"), fields.text("topic"), (int) fields.number("partition", Integer.MAX_VALUE),
                fields.textOrNull("topic_id"), fields.text("dir"), fields.numberOrNull("log_start", Long.MAX_VALUE),
                witnesses(fields), groups(fields), aborted(fields), fields.numberOrNull("checkpoint", Long.MAX_VALUE),
                fields.flag("recovery_point", true), content);
        fields.end();
        request.check();
        return request;
    }

    /** Equal for a request and its repetition. */
    String identity() {
        StringBuilder result = new StringBuilder(plan).append('/').append(topic).append('-').append(partition);
        groups.forEach(group -> result.append('/').append(group.base()));
        return result.toString();
    }

    private static List<SegmentFacts> witnesses(Fields fields) throws Refusal {
        if (!fields.has("witnesses")) {
            return null;
        }
        List<SegmentFacts> result = new ArrayList<>();
        for (Fields witness : fields.objects("witnesses")) {
            result.add(SegmentFacts.of(witness));
        }
        return List.copyOf(result);
    }

    private static Aborted aborted(Fields fields) throws Refusal {
        if (!fields.has("aborted")) {
            return null;
        }
        Fields aborted = fields.object("aborted");
        Aborted result = new Aborted(aborted.number("below", Long.MAX_VALUE), aborted.text("sha256"));
        aborted.end();
        return result;
    }

    private static List<Group> groups(Fields fields) throws Refusal {
        List<Group> result = new ArrayList<>();
        for (Fields group : fields.objects("groups")) {
            result.add(Group.of(group));
        }
        return List.copyOf(result);
    }

    private void check() throws Refusal {
        if (!PLAN.matcher(plan).matches()) {
            throw new Refusal("bad_plan", "the plan id does not match " + PLAN);
        }
        long previous = -1;
        for (SegmentFacts witness : witnesses == null ? List.<SegmentFacts>of() : witnesses) {
            if (witness.base() <= previous) {
                throw new Refusal("bad_plan", "the witnesses do not ascend");
            }
            previous = witness.base();
        }
        if (aborted != null && witnesses == null) {
            throw new Refusal("bad_plan", "the request has aborted transactions, but no witnesses");
        }
        long end = 0;
        for (Group group : groups) {
            if (group.base() < end) {
                throw new Refusal("bad_plan", "the groups do not ascend");
            }
            end = group.end();
        }
    }

    String plan() {
        return plan;
    }

    String topic() {
        return topic;
    }

    int partition() {
        return partition;
    }

    String topicId() {
        return topicId;
    }

    String dir() {
        return dir;
    }

    Long logStart() {
        return logStart;
    }

    List<SegmentFacts> witnesses() {
        return witnesses;
    }

    List<Group> groups() {
        return groups;
    }

    Aborted aborted() {
        return aborted;
    }

    Long checkpoint() {
        return checkpoint;
    }

    boolean belowRecoveryPoint() {
        return belowRecoveryPoint;
    }

    String content() {
        return content;
    }
}
