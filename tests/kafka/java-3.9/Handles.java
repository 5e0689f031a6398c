package cleanerd.judge;

import kafka.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.AbstractIndex;

/** How this release closes logs, and abandons files without changing them, like a killed broker. */
final class Handles {
    private Handles() {}

    static void close(UnifiedLog log) {
        log.close();
    }

    static void letGo(UnifiedLog log) {
        log.closeHandlers();
    }

    static void letGo(AbstractIndex index) {
        index.closeHandler();
    }
}
