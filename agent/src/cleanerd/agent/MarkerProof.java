package cleanerd.agent;

import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * Proves the changes in a staged transaction index by the markers in the sources. Each added entry ends at an ABORT
 * marker of its producer, begins with its transaction, and contains no other marker of it. Retained aborted data has its
 * entry. A removed entry did not end at an ABORT marker of its producer, or none of its data is retained.
 */
final class MarkerProof {
    private static final String CODE = "bad_txnindex";

    /** The files of the segments before the group, from the one that contains an offset. */
    interface Earlier {
        List<Path> from(long offset) throws IOException;
    }

    /** State of a producer's transaction while the log is read; -1: not found yet. */
    private static final class Producer {
        private long ended = -1; // offset of its last marker
        private long began = -1; // base offset of its first batch after that marker
        private long firstBase = -1; // base offset of the first of these batches that is retained
        private long firstLast = -1; // last offset of that batch
        private long end = -1; // last offset of the last retained batch
        private boolean hasRecords; // whether a retained batch has records
    }

    private final Group group;
    private final Path log;
    private final List<Path> sources;
    private final long logStart;
    private final Earlier earlier;
    private final Map<Long, Producer> producers = new HashMap<>();
    private final TreeMap<Long, Long> added = new TreeMap<>(); // first offset by last
    private final Map<Long, TreeMap<Long, Long>> removed = new HashMap<>(); // by producer: first offset by last
    private final Set<Long> removedAt = new HashSet<>(); // their last offsets
    private final Set<Long> withMarker = new HashSet<>(); // those last offsets where the log has a marker

    /**
     * @param log the staged log
     * @param sources the {@code .log} files of the group's sources
     * @param logStart the log start offset: consumers cannot read below it
     */
    MarkerProof(Group group, Path log, List<Path> sources, long logStart, Earlier earlier) {
        this.group = group;
        this.log = log;
        this.sources = sources;
        this.logStart = logStart;
        this.earlier = earlier;
    }

    int size() {
        return added.size() + removedAt.size();
    }

    void clear() {
        producers.clear();
        added.clear();
        removed.clear();
        removedAt.clear();
        withMarker.clear();
    }

    /** Adds an entry that the staged index has and the sources do not have. */
    void add(EntryReader entry) throws Refusal {
        long first = entry.longAt(10);
        long last = entry.longAt(18);
        if (first < 0 || first >= last || entry.longAt(26) != first) {
            throw wrong(last, "is not in a source's index, and its offsets are wrong");
        }
        added.put(last, first);
        producers.computeIfAbsent(entry.longAt(2), id -> new Producer());
    }

    /** Adds an entry that a source has and the staged index does not have. */
    void remove(long producer, long first, long last) {
        removed.computeIfAbsent(producer, id -> new TreeMap<>()).merge(last, first, Math::min);
        removedAt.add(last);
        producers.computeIfAbsent(producer, id -> new Producer());
    }

    /** Refuses unless the log proves every change; {@code index}: the staged index, or null. */
    void run(Path index) throws IOException, Refusal {
        if (added.isEmpty() && !dataRemains()) {
            return; // the usual case: entries are removed with their data
        }
        long from = added.values().stream().mapToLong(Long::longValue).min().orElse(group.base());
        for (Path file : from < group.base() ? earlier.from(from) : List.<Path>of()) {
            walk(file, null);
        }
        try (FrameReader frames = new FrameReader(log, group.base());
                EntryReader entries = index == null ? null : new EntryReader(index, TxnIndexCheck.ENTRY_BYTES)) {
            Staged staged = new Staged(frames, entries);
            for (Path file : sources) {
                walk(file, staged);
            }
        }
        if (!added.isEmpty()) {
            throw wrong(added.firstKey(), "is not in a source's index, and the log has no ABORT marker at its end");
        }
        checkOpenTransactions();
    }

    private boolean dataRemains() throws IOException, Refusal {
        try (FrameReader frames = new FrameReader(log, group.base())) {
            for (Frame frame; (frame = frames.next("bad_log")) != null; ) {
                TreeMap<Long, Long> entries = removed.get(frame.producerId());
                if (entries != null && frame.transactional() && !frame.control()) {
                    Map.Entry<Long, Long> entry = entries.ceilingEntry(frame.last());
                    if (entry != null && entry.getValue() <= frame.last()) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    /** {@code staged}: null for a segment before the group. */
    private void walk(Path file, Staged staged) throws IOException, Refusal {
        try (FrameReader frames = new FrameReader(file, 0)) {
            for (Frame frame; (frame = frames.next("source_changed")) != null; ) {
                Producer producer = frame.transactional() || frame.control() ? producers.get(frame.producerId()) : null;
                if (frame.control()) {
                    marker(frames, frame, producer, staged);
                } else if (producer != null) {
                    data(frame, producer, staged);
                }
            }
        } catch (NoSuchFileException e) {
            throw new Refusal("source_gone", e.getFile() + " is gone");
        }
    }

    private void data(Frame frame, Producer producer, Staged staged) throws IOException, Refusal {
        producer.began = producer.began < 0 ? frame.base() : producer.began;
        Frame retained = staged == null || frame.last() < logStart ? null : staged.retainedOf(frame);
        if (retained == null) {
            return;
        }
        producer.hasRecords |= retained.recordCount() > 0;
        if (producer.firstLast < 0) {
            producer.firstBase = frame.base();
            producer.firstLast = frame.last();
        }
        producer.end = frame.last();
    }

    private void marker(FrameReader frames, Frame frame, Producer producer, Staged staged) throws IOException, Refusal {
        long at = frame.last();
        boolean named = staged != null && (added.containsKey(at) || removedAt.contains(at));
        int type = producer == null && !named ? -1 : frames.markerType(frame);
        if (type < 0) {
            return;
        }
        boolean aborts = type == FrameReader.ABORT;
        boolean has = staged != null && staged.hasEntry(at, frame.producerId());
        if (named) {
            withMarker.add(at);
            Long first = added.remove(at);
            if (first != null) {
                requireCorrection(first, frame, aborts && has ? producer : null);
            }
        }
        if (producer == null) {
            return;
        }
        // Empty batches are harmless if the log never had the entry.
        boolean needed = producer.hasRecords || producer.firstLast >= 0 && isRemoved(frame.producerId(), at);
        if (aborts && needed && !(has && staged.first() <= producer.firstLast)) {
            throw missing(producer);
        }
        producer.ended = at;
        producer.began = producer.firstBase = producer.firstLast = producer.end = -1;
        producer.hasRecords = false;
    }

    private boolean isRemoved(long producer, long last) {
        return removed.getOrDefault(producer, new TreeMap<>()).containsKey(last);
    }

    /** {@code producer}: the entry's producer, or null if the marker is not an ABORT of it. */
    private void requireCorrection(long first, Frame marker, Producer producer) throws Refusal {
        if (producer == null) {
            throw wrong(marker.last(), "is not in a source's index, and the marker at its end is not an ABORT of its producer");
        }
        // In an earlier segment the first batch may be gone, because this plan has swapped it.
        if (first <= producer.ended || first > producer.began) {
            throw wrong(marker.last(), "is not in a source's index, and its transaction begins at offset " + producer.began);
        }
    }

    /** Checks data without a later marker in this group: no marker shows that its removed entry was wrong. */
    private void checkOpenTransactions() throws Refusal {
        for (Map.Entry<Long, TreeMap<Long, Long>> entries : removed.entrySet()) {
            Producer producer = producers.get(entries.getKey());
            for (Map.Entry<Long, Long> entry : entries.getValue().tailMap(producer.firstBase, true).entrySet()) {
                boolean covered = producer.firstLast >= 0 && entry.getValue() <= producer.end;
                if (covered && !withMarker.contains(entry.getKey())) {
                    throw missing(producer);
                }
            }
        }
    }

    private static Refusal missing(Producer producer) {
        return new Refusal(CODE, "the batch " + producer.firstBase + " to " + producer.firstLast
                + " is aborted data, but the staged index has no entry for it");
    }

    private static Refusal wrong(long last, String what) {
        return new Refusal(CODE, "the entry up to offset " + last + " " + what);
    }

    /** The staged log and index, read in step with the sources. */
    private static final class Staged {
        private final FrameReader frames;
        private final EntryReader entries;
        private Frame frame;
        private boolean atEntry;

        Staged(FrameReader frames, EntryReader entries) {
            this.frames = frames;
            this.entries = entries;
        }

        /** The staged form of a batch, null if it was removed. */
        Frame retainedOf(Frame source) throws IOException, Refusal {
            while (frame == null || frame.last() < source.last()) {
                Frame next = frames.next("bad_log");
                if (next == null) {
                    return null;
                }
                frame = next;
            }
            return frame.last() == source.last() ? frame : null;
        }

        /** Whether the producer's entry ends at {@code last}. Call it in ascending order. */
        boolean hasEntry(long last, long producer) throws IOException {
            while (entries != null && (!atEntry || entries.longAt(18) < last)) {
                if (!entries.next()) {
                    return false;
                }
                atEntry = true;
            }
            return entries != null && entries.longAt(18) == last && entries.longAt(2) == producer;
        }

        long first() {
            return entries.longAt(10);
        }
    }
}
