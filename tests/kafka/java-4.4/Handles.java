package cleanerd.judge;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** How this release closes logs, and lets go of files without touching them, as a broker that is killed does. */
final class Handles {
    private Handles() {}

    /** Since 4.4 to close a log cuts no index to what is used of it: its LogManager asks for that before. */
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
