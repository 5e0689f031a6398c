package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** A swap stops at a test's moment while {@code NAME.stop} exists in the directory of the system property. */
final class Moment {
    private static final Path PLACE = Path.of(System.getProperty("cleanerd.test.moments"));
    private static final int MOST_STEPS = 6000;

    private Moment() {}

    static void reached(String name) {
        if (Thread.currentThread().getName().equals("cleanerd-agent")) {
            return; // the agent's own self-test: no test waits for that
        }
        Path stop = PLACE.resolve(name + ".stop");
        try {
            boolean isStopped = Files.exists(stop);
            if (isStopped) {
                Files.deleteIfExists(PLACE.resolve(name + ".left"));
                Files.createFile(PLACE.resolve(name + ".reached"));
            }
            for (int step = 0; Files.exists(stop) && step < MOST_STEPS; step++) {
                Thread.sleep(10);
            }
            if (isStopped) {
                Files.createFile(PLACE.resolve(name + ".left"));
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
