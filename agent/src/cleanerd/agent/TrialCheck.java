package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Stream;

/** What must hold after the swap of a {@link Trial}; a Refusal says what does not. */
final class TrialCheck {
    private static final String DELETION = "delete-file";

    private TrialCheck() {}

    static void check(TrialLog log, List<Long> stay, long end, long inode, Outcome outcome, long deleteDelayMs)
            throws IOException, ReflectiveOperationException, Refusal {
        Path file = log.dir().resolve(Group.brokerName(0, "log"));
        require(outcome.done.equals(List.of(0L)) && outcome.warnings.isEmpty(), "the swap ended with " + outcome.toJson());
        require(FileFacts.of(file).inode() == inode, file.getFileName() + " is not the file that was staged");
        require(Arrays.equals(Files.readAllBytes(file), TrialData.log(stay)), "the staged log has other bytes");
        List<BrokerSegment> segments = log.segments();
        require(segments.size() == 2 && segments.get(0).base() == 0 && segments.get(1).base() == end,
                "the log has other segments than 0 and " + end);
        require(segments.get(0).file().getFileName().equals(file.getFileName())
                && segments.get(0).size() == TrialData.log(stay).length, "the segment has another file or size");
        require(log.logStartOffset() == 0 && log.logEndOffset() == end + 1 && log.highWatermark() == end + 1,
                "the log begins or ends at another offset");
        for (int i = 1; i < stay.size(); i++) {
            require(log.positionOf(segments.get(0), stay.get(i)) == TrialData.positionOf(i),
                    "the index does not lead to offset " + stay.get(i));
        }
        checkDeletion(log, deleteDelayMs);
        log.append(TrialData.batch(end + 1)); // out of sequence, if the producer were forgotten
        List<List<Object>> producers = log.producers(List.of(TrialData.PRODUCER, TrialData.PRODUCER + 1));
        require(producers.equals(List.of(List.of(TrialData.PRODUCER, end + 1, (short) 0))),
                "the state of the producer is " + producers);
        require(log.logEndOffset() == end + 2, "the log cannot be appended to");
    }

    private static void checkDeletion(TrialLog log, long deleteDelayMs)
            throws IOException, ReflectiveOperationException, Refusal {
        TreeSet<String> names = names(log.dir());
        require(names.stream().noneMatch(name -> name.endsWith(".swap") || name.endsWith(".cleaned")),
                "temporary names are left: " + names);
        require(names.contains(Group.brokerName(0, "log.deleted")) && names.contains(Group.brokerName(3, "log.deleted"))
                && !names.contains(Group.brokerName(3, "log")), "the replaced segments are not marked as deleted: " + names);
        require(log.tasks().count(DELETION, deleteDelayMs) > 0, "no deletion is scheduled after file.delete.delay.ms");
        log.tasks().run(DELETION);
        require(names(log.dir()).stream().noneMatch(name -> name.endsWith(".log.deleted")),
                "the replaced segments are not deleted: " + names(log.dir()));
        require(Files.exists(log.dir().resolve(Group.brokerName(0, "log"))), "the new segment was deleted");
    }

    private static TreeSet<String> names(Path directory) throws IOException {
        TreeSet<String> names = new TreeSet<>();
        try (Stream<Path> files = Files.list(directory)) {
            files.forEach(file -> names.add(file.getFileName().toString()));
        }
        return names;
    }

    private static void require(boolean holds, String what) throws Refusal {
        if (!holds) {
            throw new Refusal("incapable", what);
        }
    }
}
