package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * Checks staged files before the broker uses them without any check. Files pass only if a cleaning of these sources
 * can have written them.
 */
final class StagedCheck {
    private StagedCheck() {}

    /**
     * Refuses with the code of the first check that fails.
     *
     * @param sources the files of the group's sources
     * @param logStart the log start offset
     * @param earlier the segments before the group
     */
    static void check(Group group, Staging staging, List<Path> sources, int indexIntervalBytes, long logStart,
            MarkerProof.Earlier earlier) throws IOException, Refusal {
        Path log = staging.paths().get("log");
        long batches;
        try (FrameReader frames = new FrameReader(log, group.base());
                Checksum sum = new Checksum(log);
                SourceMatch match = new SourceMatch(sources, group);
                IndexCheck index = new IndexCheck(staging.paths().get("index"), group, indexIntervalBytes);
                TimeIndexCheck times = new TimeIndexCheck(staging.paths().get("timeindex"), group)) {
            LogCheck check = new LogCheck(group);
            for (Frame frame; (frame = frames.next("bad_log")) != null; ) {
                check.accept(frame);
                if (sum.ofBatch(frame) != frame.crc()) {
                    throw new Refusal("bad_log", "wrong CRC of the batch at position " + frame.position());
                }
                match.accept(frame);
                index.accept(frame);
                times.accept(frame);
            }
            check.end();
            checkSum("log", group, sum.ofFile());
            match.end();
            index.end(check.last());
            times.end(check.last());
            batches = check.batches();
        }
        checkSize(group, batches);
        for (String kind : group.files().keySet()) {
            if (!kind.equals("log")) {
                checkSum(kind, group, Checksum.of(staging.paths().get(kind)));
            }
        }
        MarkerProof proof = new MarkerProof(group, log, sources, logStart, earlier);
        TxnIndexCheck.check(group, staging.paths().get("txnindex"), sources, proof);
    }

    /** Delete horizons and recompression make batches only a little larger (U-22). */
    private static void checkSize(Group group, long batches) throws Refusal {
        long most = 16 * batches;
        for (SegmentFacts source : group.sources()) {
            most += source.size() + source.size() / 20;
        }
        long size = group.files().get("log").size();
        if (size > most) {
            throw new Refusal("bad_log", "the staged log has " + size + " bytes, a cleaning of these sources writes at most "
                    + most);
        }
    }

    private static void checkSum(String kind, Group group, int found) throws Refusal {
        if (found != group.files().get(kind).crc()) {
            throw new Refusal(Staging.codeOf(kind), "the ." + kind + " file is not the staged one: wrong CRC");
        }
    }
}
