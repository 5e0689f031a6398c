package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What a plan rests on, held against the broker's segments (A-13, A-14, U-2, U-3). To be called with the log's monitor
 * held: first before anything is done, and again right before the swap.
 */
final class Evidence {
    private final BrokerLog log;
    private final SwapRequest request;
    private final List<SegmentFacts> expected;
    private final List<Group> pending;
    private final Map<Long, Integer> places = new HashMap<>();
    private List<BrokerSegment> seen;

    Evidence(BrokerLog log, SwapRequest request) {
        this.log = log;
        this.request = request;
        this.expected = new ArrayList<>(request.witnesses());
        this.pending = new ArrayList<>(request.groups());
        number();
    }

    /** Refuses unless everything is as the request says, and as it was the last time. */
    void check() throws IOException, Refusal {
        checkLog();
        checkBounds();
        List<BrokerSegment> all = log.segments();
        int start = startIn(all);
        for (int i = 0; i < expected.size(); i++) {
            checkSegment(start + i < all.size() ? all.get(start + i) : null, i);
        }
        if (start + expected.size() >= all.size()) {
            throw new Refusal("not_sealed", "segment " + expected.get(expected.size() - 1).base() + " is the active one");
        }
        long bound = all.get(start + expected.size()).base();
        if (request.checkpoint() != null && request.checkpoint() > bound) {
            throw new Refusal("bad_plan", "the checkpoint lies above " + bound + ", where the evidence ends");
        }
        for (Group group : pending) {
            int after = start + placeOf(group) + group.sources().size();
            if (all.get(after).base() != group.end()) {
                throw new Refusal("source_changed", "segment " + all.get(after).base() + " follows group " + group.base()
                        + ", not " + group.end());
            }
        }
        seen = new ArrayList<>(all.subList(start, start + expected.size()));
    }

    /** The broker's objects of a group's sources. */
    List<BrokerSegment> sourcesOf(Group group) {
        int place = placeOf(group);
        return List.copyOf(seen.subList(place, place + group.sources().size()));
    }

    /** From now on {@code output} stands in place of the group's sources. */
    void swapped(Group group, BrokerSegment output, SegmentFacts facts) {
        int place = placeOf(group);
        int end = place + group.sources().size();
        seen.subList(place, end).clear();
        seen.add(place, output);
        expected.subList(place, end).clear();
        expected.add(place, facts);
        pending.remove(group);
        number();
    }

    /** the log is the one that was meant, and one that is cleaned at all. */
    private void checkLog() throws IOException, Refusal {
        if (!log.isCurrent()) {
            throw new Refusal("log_changed", log + " is another log by now");
        }
        String topicId = log.topicId();
        if (topicId == null ? request.topicId() != null : !topicId.equals(request.topicId())) {
            throw new Refusal("topic_id", "the id of " + request.topic() + " is " + topicId);
        }
        if (!log.dir().toString().equals(request.dir())) {
            throw new Refusal("log_changed", log + " lies in " + log.dir());
        }
        String name = request.topic() + "-" + request.partition();
        if (!log.dir().getFileName().toString().equals(name)) {
            throw new Refusal("log_changed", log + " is being moved or deleted");
        }
        if (name.equals("__cluster_metadata-0") || !log.compacted() || log.remote()) {
            throw new Refusal("not_eligible", log + " is no compacted log with all its segments here");
        }
        if (log.hasFuture()) {
            throw new Refusal("busy", log + " is being moved to another log directory");
        }
        if (request.logStart() != null && log.logStartOffset() != request.logStart()) {
            throw new Refusal("log_start", "the log start offset is " + log.logStartOffset());
        }
    }

    private void checkBounds() throws IOException, Refusal {
        long end = request.groups().get(request.groups().size() - 1).end();
        long bound = Math.min(log.highWatermark(), log.lastStableOffset());
        if (end > bound) {
            throw new Refusal("not_below_bound", "the groups end at " + end + ", what is stable at " + bound);
        }
        if (request.belowRecoveryPoint() && end > log.recoveryPoint()) {
            throw new Refusal("not_below_bound", "the groups end at " + end + ", the recovery point is "
                    + log.recoveryPoint());
        }
    }

    private int startIn(List<BrokerSegment> all) throws IOException, Refusal {
        long first = expected.get(0).base();
        for (int i = 0; i < all.size(); i++) {
            if (all.get(i).base() == first) {
                return i;
            }
        }
        throw gone(first);
    }

    private void checkSegment(BrokerSegment found, int place) throws IOException, Refusal {
        SegmentFacts wanted = expected.get(place);
        if (found == null || found.base() != wanted.base()) {
            throw gone(wanted.base());
        }
        SegmentFacts facts;
        try {
            facts = found.facts();
        } catch (NoSuchFileException e) {
            throw gone(wanted.base());
        }
        boolean plain = found.file().getFileName().toString().equals(Group.brokerName(wanted.base(), "log"));
        boolean same = seen == null || seen.get(place).segment == found.segment;
        if (!plain || !same || !facts.equals(wanted)) {
            throw new Refusal(isSource(wanted.base()) ? "source_changed" : "evidence_changed",
                    "segment " + wanted.base() + " is no longer the one that was read: " + Json.write(facts.toJson()));
        }
    }

    private Refusal gone(long base) {
        return new Refusal(isSource(base) ? "source_gone" : "evidence_changed", "there is no segment " + base
                + " any more, or another one before it");
    }

    private boolean isSource(long base) {
        Set<Long> sources = new HashSet<>();
        pending.forEach(group -> group.sources().forEach(source -> sources.add(source.base())));
        return sources.contains(base);
    }

    private int placeOf(Group group) {
        return places.get(group.base());
    }

    private void number() {
        places.clear();
        for (SegmentFacts facts : expected) {
            places.put(facts.base(), places.size());
        }
    }
}
