package cleanerd.agent;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A swap request, so far as it makes sense in itself; bad_plan when it does not.
 *
 * @param logStart the log start offset that the decision rests on, null: it rests on none (U-2)
 * @param witnesses every segment that the decision rests on, as it was read (U-3)
 * @param checkpoint the clean point to tell the broker's cleaner, or null
 * @param belowRecoveryPoint whether the groups must lie below the recovery point too
 * @param content the whole request without its id: what a repeated request must be
 */
record SwapRequest(String plan, String topic, int partition, String topicId, String dir, Long logStart,
        List<SegmentFacts> witnesses, List<Group> groups, Long checkpoint, boolean belowRecoveryPoint, String content) {
    private static final Pattern PLAN = Pattern.compile("[a-z0-9-]{1,40}");

    static SwapRequest of(Fields fields, String content) throws Refusal {
        SwapRequest request = new SwapRequest(
                fields.text("plan"), fields.text("topic"), (int) fields.number("partition", Integer.MAX_VALUE),
                fields.textOrNull("topic_id"), fields.text("dir"), fields.numberOrNull("log_start", Long.MAX_VALUE),
                witnesses(fields), groups(fields), fields.numberOrNull("checkpoint", Long.MAX_VALUE),
                fields.flag("recovery_point", true), content);
        fields.end();
        request.check();
        return request;
    }

    /** What makes two requests the same one. */
    String identity() {
        StringBuilder result = new StringBuilder(plan).append('/').append(topic).append('-').append(partition);
        groups.forEach(group -> result.append('/').append(group.base()));
        return result.toString();
    }

    private static List<SegmentFacts> witnesses(Fields fields) throws Refusal {
        List<SegmentFacts> result = new ArrayList<>();
        for (Fields witness : fields.objects("witnesses")) {
            result.add(SegmentFacts.of(witness));
        }
        return List.copyOf(result);
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
            throw new Refusal("bad_plan", "the plan id is not of [a-z0-9-]{1,40}");
        }
        Map<Long, Integer> places = new HashMap<>();
        long previous = -1;
        for (SegmentFacts witness : witnesses) {
            if (witness.base() <= previous) {
                throw new Refusal("bad_plan", "the witnesses do not ascend");
            }
            previous = witness.base();
            places.put(witness.base(), places.size());
        }
        long end = 0;
        for (Group group : groups) {
            if (group.base() < end) {
                throw new Refusal("bad_plan", "the groups do not ascend");
            }
            end = group.end();
            Integer place = places.get(group.base());
            for (SegmentFacts source : group.sources()) {
                if (place == null || place >= witnesses.size() || !witnesses.get(place).equals(source)) {
                    throw new Refusal("bad_plan", "source " + source.base() + " is not among the witnesses as it is, or "
                            + "there is another one between the sources of group " + group.base());
                }
                place++;
            }
            if (place < witnesses.size() && witnesses.get(place).base() != group.end()) {
                throw new Refusal("bad_plan", "the witness after group " + group.base() + " is not its end");
            }
        }
    }
}
