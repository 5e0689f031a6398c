package cleanerd.agent;

import java.nio.file.Files;
import java.nio.file.Path;

/** The system refuses a new thread while NAME.none exists in the directory of the system property. */
final class Threads {
    private static final Path PLACE = Path.of(System.getProperty("cleanerd.test.threads"));

    private Threads() {}

    static Thread start(String name, Runnable work) {
        if (Files.exists(PLACE.resolve(name + ".none"))) {
            throw new OutOfMemoryError("unable to create native thread");
        }
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
