package cleanerd.judge;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** How this release closes logs, and abandons files without changing them, like a killed broker. */
final class Handles {
    private Handles() {}

    /** Since 4.4 closing a log does not truncate its indexes to the used part: its LogManager does that before. */
    static void close(UnifiedLog log) {
        log.prepareActiveSegmentForClose();
        log.close();
    }

    static void letGo(UnifiedLog log) {
        log.closeQuietly();
    }

    static void letGo(AbstractIndex index) {
        try {
            index.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
