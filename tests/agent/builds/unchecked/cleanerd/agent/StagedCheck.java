package cleanerd.agent;

import java.nio.file.Path;
import java.util.List;

/** Accepts everything, to show the broker's result. */
final class StagedCheck {
    private StagedCheck() {}

    static void check(Group group, Staging staging, List<Path> sources, int indexIntervalBytes, long logStart,
            MarkerProof.Earlier earlier) {}
}
