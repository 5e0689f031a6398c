package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A swap records when it has the log's lock, by the clock of the JVM's own safepoint log. */
final class Moment {
    private static final Path NOTES = Path.of(System.getProperty("cleanerd.test.times"));

    private Moment() {}

    static void reached(String name) {
        boolean selfTest = Thread.currentThread().getName().equals("cleanerd-agent"); // the agent's own, in a test log
        if (name.equals("locked") && !selfTest) {
            String line = System.nanoTime() + "\n";
            try {
                Files.writeString(NOTES, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
