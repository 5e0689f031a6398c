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
 * Proves by the markers in the sources what a staged transaction index changes. Each added entry ends at an ABORT
 * marker of its producer, begins with its transaction, and reaches back over no other marker. Aborted data that is left
 * has its entry. An entry that was left out ended at no ABORT marker of its producer, or has no data left.
 */
final class MarkerProof {
    private static final String CODE = "bad_txnindex";

    /** The files of the segments before the group, from the one with an offset on. */
    interface Earlier {
        List<Path> from(long offset) throws IOException;
    }

    /** A producer's transaction as far as it was read: -1 where there is nothing yet. */
    private static final class Producer {
        private long ended = -1; // its last marker
        private long began = -1; // the base offset of the first batch since
        private long leftBase = -1; // the first of these batches that is left: its base offset
        private long leftLast = -1; // its last offset
        private boolean hasRecords; // one that is left has
        private long leftEnd = -1; // the last offset of the last one that is left
    }

    private final Group group;
    private final Path log;
    private final List<Path> sources;
    private final long logStart;
    private final Earlier earlier;
    private final Map<Long, Producer> producers = new HashMap<>();
    private final TreeMap<Long, Long> added = new TreeMap<>(); // first offset by last
    private final Map<Long, TreeMap<Long, Long>> leftOut = new HashMap<>(); // by producer: first offset by last
    private final Set<Long> leftOutAt = new HashSet<>(); // the last offsets of these
    private final Set<Long> settled = new HashSet<>(); // those of them where the log has a marker

    /**
     * @param log the staged log
     * @param sources the {@code .log} files of the group's sources
     * @param logStart what lies below it is shown to no reader
     */
    MarkerProof(Group group, Path log, List<Path> sources, long logStart, Earlier earlier) {
        this.group = group;
        this.log = log;
        this.sources = sources;
        this.logStart = logStart;
        this.earlier = earlier;
    }

    int size() {
        return added.size() + leftOutAt.size();
    }

    void clear() {
        producers.clear();
        added.clear();
        leftOut.clear();
        leftOutAt.clear();
        settled.clear();
    }

    /** The staged index has the entry, and no source has. */
    void add(EntryReader entry) throws Refusal {
        long first = entry.longAt(10);
        long last = entry.longAt(18);
        if (first < 0 || first >= last || entry.longAt(26) != first) {
            throw wrong(last, "is none of the sources'");
        }
        added.put(last, first);
        producers.computeIfAbsent(entry.longAt(2), id -> new Producer());
    }

    /** A source has the entry, and the staged index does not. */
    void leaveOut(long producer, long first, long last) {
        leftOut.computeIfAbsent(producer, id -> new TreeMap<>()).merge(last, first, Math::min);
        leftOutAt.add(last);
        producers.computeIfAbsent(producer, id -> new Producer());
    }

    /** Refuses unless the log bears out every change; {@code index} is the staged one, or null. */
    void run(Path index) throws IOException, Refusal {
        if (added.isEmpty() && !dataIsLeft()) {
            return; // most of the time: entries go with their data
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
            throw wrong(added.firstKey(), "is none of the sources', and no ABORT marker is there");
        }
        checkLeftOpen();
    }

    private boolean dataIsLeft() throws IOException, Refusal {
        try (FrameReader frames = new FrameReader(log, group.base())) {
            for (Frame frame; (frame = frames.next("bad_log")) != null; ) {
                TreeMap<Long, Long> entries = leftOut.get(frame.producerId());
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
        Frame left = staged == null || frame.last() < logStart ? null : staged.leftOf(frame);
        if (left == null) {
            return;
        }
        producer.hasRecords |= left.recordCount() > 0;
        if (producer.leftLast < 0) {
            producer.leftBase = frame.base();
            producer.leftLast = frame.last();
        }
        producer.leftEnd = frame.last();
    }

    private void marker(FrameReader frames, Frame frame, Producer producer, Staged staged) throws IOException, Refusal {
        long at = frame.last();
        boolean named = staged != null && (added.containsKey(at) || leftOutAt.contains(at));
        int type = producer == null && !named ? -1 : frames.markerType(frame);
        if (type < 0) {
            return;
        }
        boolean aborts = type == FrameReader.ABORT;
        boolean has = staged != null && staged.hasEntry(at, frame.producerId());
        if (named) {
            settled.add(at);
            Long first = added.remove(at);
            if (first != null) {
                requireCorrection(first, frame, aborts && has ? producer : null);
            }
        }
        if (producer == null) {
            return;
        }
        // Empty batches of a log that never had the entry do no harm.
        boolean needed = producer.hasRecords || producer.leftLast >= 0 && isLeftOut(frame.producerId(), at);
        if (aborts && needed && !(has && staged.first() <= producer.leftLast)) {
            throw missing(producer);
        }
        producer.ended = at;
        producer.began = producer.leftBase = producer.leftLast = producer.leftEnd = -1;
        producer.hasRecords = false;
    }

    private boolean isLeftOut(long producer, long last) {
        return leftOut.getOrDefault(producer, new TreeMap<>()).containsKey(last);
    }

    /** {@code producer}: null unless it is the entry's, and the marker an ABORT. */
    private void requireCorrection(long first, Frame marker, Producer producer) throws Refusal {
        if (producer == null) {
            throw wrong(marker.last(), "is none of the sources', and the marker there is no ABORT of its producer");
        }
        // Of an earlier segment the first batch may be gone, as this plan swapped it.
        if (first <= producer.ended || first > producer.began) {
            throw wrong(marker.last(), "is none of the sources', and its transaction begins at " + producer.began);
        }
    }

    /** Data whose producer has no marker after it in this group: an entry that covered it was not wrong by any marker. */
    private void checkLeftOpen() throws Refusal {
        for (Map.Entry<Long, TreeMap<Long, Long>> entries : leftOut.entrySet()) {
            Producer producer = producers.get(entries.getKey());
            for (Map.Entry<Long, Long> entry : entries.getValue().tailMap(producer.leftBase, true).entrySet()) {
                boolean covered = producer.leftLast >= 0 && entry.getValue() <= producer.leftEnd;
                if (covered && !settled.contains(entry.getKey())) {
                    throw missing(producer);
                }
            }
        }
    }

    private static Refusal missing(Producer producer) {
        return new Refusal(CODE, "the batch " + producer.leftBase + " to " + producer.leftLast
                + " is aborted data, and its entry is missing");
    }

    private static Refusal wrong(long last, String what) {
        return new Refusal(CODE, "the entry up to " + last + " " + what);
    }

    /** What is staged, read along with the sources. */
    private static final class Staged {
        private final FrameReader frames;
        private final EntryReader entries;
        private Frame frame;
        private boolean atEntry;

        Staged(FrameReader frames, EntryReader entries) {
            this.frames = frames;
            this.entries = entries;
        }

        /** What is left of a batch, null where it is gone. */
        Frame leftOf(Frame source) throws IOException, Refusal {
            while (frame == null || frame.last() < source.last()) {
                Frame next = frames.next("bad_log");
                if (next == null) {
                    return null;
                }
                frame = next;
            }
            return frame.last() == source.last() ? frame : null;
        }

        /** Whether the producer's entry ends at {@code last}; to be asked in ascending order. */
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
