package cleanerd.agent;

import java.nio.file.Path;
import java.util.List;

/** Lets everything in, to show what the broker does with it. */
final class StagedCheck {
    private StagedCheck() {}

    static void check(Group group, Staging staging, List<Path> sources, int indexIntervalBytes, long logStart,
            MarkerProof.Earlier earlier) {}
}
