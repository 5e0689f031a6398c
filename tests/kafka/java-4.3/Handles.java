package cleanerd.judge;

import org.apache.kafka.storage.internals.log.AbstractIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;

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
