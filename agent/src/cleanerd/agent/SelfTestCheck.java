package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Stream;

/** Checks the log after the swap of a {@link SelfTest}. A Refusal says which check failed. */
final class SelfTestCheck {
    private static final String DELETION = "delete-file";

    private SelfTestCheck() {}

    static void check(SelfTestLog log, List<Long> retained, long end, long inode, Outcome outcome, long deleteDelayMs)
            throws IOException, ReflectiveOperationException, Refusal {
        Path file = log.dir().resolve(Group.brokerName(0, "log"));
        require(outcome.done.equals(List.of(0L)) && outcome.warnings.isEmpty(), "the swap ended with " + outcome.toJson());
        require(FileFacts.of(file).inode() == inode, file.getFileName() + " is not the file that was staged");
        require(Arrays.equals(Files.readAllBytes(file), SelfTestData.log(retained)),
                "the new segment's bytes are not those that were staged");
        List<BrokerSegment> segments = log.segments();
        require(segments.size() == 2 && segments.get(0).base() == 0 && segments.get(1).base() == end,
                "the log's segments are not 0 and " + end);
        require(segments.get(0).file().getFileName().equals(file.getFileName())
                && segments.get(0).size() == SelfTestData.log(retained).length, "the new segment's file name or size is wrong");
        require(log.logStartOffset() == 0 && log.logEndOffset() == end + 1 && log.highWatermark() == end + 1,
                "the log start offset, log end offset or high watermark is wrong");
        for (int i = 1; i < retained.size(); i++) {
            require(log.positionOf(segments.get(0), retained.get(i)) == SelfTestData.positionOf(i),
                    "the index does not lead to offset " + retained.get(i));
        }
        checkDeletion(log, deleteDelayMs);
        log.append(SelfTestData.batch(end + 1)); // refused as out of sequence if the broker forgot the producer
        List<List<Object>> producers = log.producers(List.of(SelfTestData.PRODUCER, SelfTestData.PRODUCER + 1));
        require(producers.equals(List.of(List.of(SelfTestData.PRODUCER, end + 1, (short) 0))),
                "the producer's state is " + producers);
        require(log.logEndOffset() == end + 2, "an append did not move the log end offset");
    }

    private static void checkDeletion(SelfTestLog log, long deleteDelayMs)
            throws IOException, ReflectiveOperationException, Refusal {
        TreeSet<String> names = names(log.dir());
        require(names.stream().noneMatch(name -> name.endsWith(".swap") || name.endsWith(".cleaned")),
                "files with temporary names remain: " + names);
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
